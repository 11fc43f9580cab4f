/* A clock for LD_PRELOAD: the time of day of every Python, moved by the seconds in the file $CLOCK_OFFSET_FILE.

   Slurm's programs keep theirs: they would refuse one another's credentials. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

static long offset(void) {
  long seconds = 0;
  const char *path = getenv("CLOCK_OFFSET_FILE");
  int is_python = !strncmp(program_invocation_short_name, "python", 6);
  FILE *file = path && is_python ? fopen(path, "re") : NULL;
  if (file) {
    if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
    fclose(file);
  }
  return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int status = real(clock, now);
  if (!status && clock == CLOCK_REALTIME) now->tv_sec += offset();
  return status;
}

int gettimeofday(struct timeval *now, void *zone) {
  struct timespec exact;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
