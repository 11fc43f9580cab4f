/* A stand-in for NVIDIA's management library, with two GPUs, for machines that have none. The second is idle. */
#include <stdio.h>
#include <string.h>

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

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  for (int i = 0; i < 2; i++)
    if (!strcmp(uuid, UUIDS[i])) {
      *device = &devices[i];
      return 0;
    }
  return 6; /* NVML_ERROR_NOT_FOUND */
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
  snprintf(text, size, "%s", UUIDS[*(int *)device]);
  return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *shares) {
  shares[0] = *(int *)device ? 0 : 93;
  shares[1] = 40;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *sizes) {
  sizes[0] = 80ull << 30;
  sizes[1] = 20ull << 30;
  sizes[2] = 60ull << 30;
  return device ? 0 : 2;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
  *milliwatts = *(int *)device ? 70000 : 412500;
  return 0;
}
