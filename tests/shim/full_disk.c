/* Loaded before libc: while the file FULL_WHILE exists, nothing can be written below the folder FULL_BELOW: there is no
 * space, or whatever the error number in that file says. Whoever met with that is told of by the file FULL_WHILE.met. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* Zero when it may be written to, else the error. */
static int trouble(int fd) {
  const char *below = getenv("FULL_BELOW"), *flag = getenv("FULL_WHILE");
  char link[64], path[PATH_MAX];
  if (!below || !flag || access(flag, F_OK)) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n <= 0) return 0;
  path[n] = 0;
  if (strncmp(path, below, strlen(below))) return 0;
  FILE *said = fopen(flag, "r");
  int error = 0;
  if (said) { if (fscanf(said, "%d", &error) != 1) error = 0; fclose(said); }
  char met[PATH_MAX];
  snprintf(met, sizeof met, "%s.met", flag);
  FILE *told = fopen(met, "w");
  if (told) fclose(told);
  return error ? error : ENOSPC;
}

ssize_t write(int fd, const void *data, size_t n) {
  ssize_t (*real)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
  int error = trouble(fd);
  if (error) { errno = error; return -1; }
  return real(fd, data, n);
}

static ssize_t any_pwrite(const char *name, int fd, const void *data, size_t n, off_t at) {
  ssize_t (*real)(int, const void *, size_t, off_t) = (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name);
  int error = trouble(fd);
  if (error) { errno = error; return -1; }
  return real(fd, data, n, at);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t at) { return any_pwrite("pwrite", fd, data, n, at); }
ssize_t pwrite64(int fd, const void *data, size_t n, off_t at) { return any_pwrite("pwrite64", fd, data, n, at); }
