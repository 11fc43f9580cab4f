/* A stand-in for NVIDIA's management library, with two GPUs, for machines that have none. */
#include <stdio.h>

static const char *const UUIDS[] = {"GPU-aaaa", "GPU-bbbb"};
static int devices[2] = {0, 1};

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }

int nvmlDeviceGetCount_v2(unsigned *count) {
  *count = 2;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  *device = &devices[index];
  return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
  snprintf(text, size, "%s", UUIDS[*(int *)device]);
  return 0;
}
