/* Loaded before libc: nothing can be read of the file whose number is BAD_INODE, as if it lay on bad sectors (EIO). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int is_bad(int fd) {
  const char *bad = getenv("BAD_INODE");
  struct stat facts;
  return bad && !fstat(fd, &facts) && facts.st_ino == strtoull(bad, NULL, 10);
}

ssize_t read(int fd, void *data, size_t n) {
  ssize_t (*real)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
  if (is_bad(fd)) { errno = EIO; return -1; }
  return real(fd, data, n);
}

static ssize_t any_pread(const char *name, int fd, void *data, size_t n, off_t at) {
  ssize_t (*real)(int, void *, size_t, off_t) = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, name);
  if (is_bad(fd)) { errno = EIO; return -1; }
  return real(fd, data, n, at);
}
ssize_t pread(int fd, void *data, size_t n, off_t at) { return any_pread("pread", fd, data, n, at); }
ssize_t pread64(int fd, void *data, size_t n, off_t at) { return any_pread("pread64", fd, data, n, at); }
