/* Loaded before libc: while the file IO_ERRORS_WHILE exists, each write to a file below IO_ERRORS_BELOW and
   each sync of one is an input/output error, as a broken disk has them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int broken(int fd)
{
    char name[64], path[4096];
    const char *below = getenv("IO_ERRORS_BELOW"), *flag = getenv("IO_ERRORS_WHILE");
    if (!below || !flag || access(flag, F_OK) != 0)
        return 0;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(name, path, sizeof path - 1);
    if (size < 0)
        return 0;
    path[size] = 0;
    return strncmp(path, below, strlen(below)) == 0;
}

#define FAULTY(type, name, parameters, arguments)                                   \
    type name parameters                                                            \
    {                                                                               \
        static type (*real) parameters;                                             \
        if (!real)                                                                  \
            real = (type (*) parameters) dlsym(RTLD_NEXT, #name);                   \
        if (broken(fd)) {                                                           \
            errno = EIO;                                                            \
            return -1;                                                              \
        }                                                                           \
        return real arguments;                                                      \
    }

FAULTY(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
FAULTY(ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at))
FAULTY(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
FAULTY(int, fsync, (int fd), (fd))
FAULTY(int, fdatasync, (int fd), (fd))
FAULTY(int, ftruncate, (int fd, off_t size), (fd, size))
