/* Loaded before libc: the wall clock is off by as many seconds as the file CLOCK_OFF says; no other clock is touched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long off(void) {
  const char *path = getenv("CLOCK_OFF");
  long seconds = 0;
  FILE *said = path ? fopen(path, "r") : NULL;
  if (said) { if (fscanf(said, "%ld", &seconds) != 1) seconds = 0; fclose(said); }
  return seconds;
}
int clock_gettime(clockid_t id, struct timespec *now) {
  int (*real)(clockid_t, struct timespec *) = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(id, now);
  if (!done && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += off();
  return done;
}
int gettimeofday(struct timeval *now, void *zone) {
  int (*real)(struct timeval *, void *) = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
  int done = real(now, zone);
  if (!done) now->tv_sec += off();
  return done;
}
time_t time(time_t *to) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
