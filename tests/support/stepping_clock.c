/* Loaded before the C library: a wall clock that steps by as many seconds as the file BERTH_CLOCK_STEP says.
 *
 * The file is eight bytes, a signed number in the machine's order, and is looked at with each reading. The
 * monotonic clock is left alone. Compiled and used by tests/host/faults/test_clock.py.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *step;

__attribute__((constructor)) static void open_step(void) {
    const char *path = getenv("BERTH_CLOCK_STEP");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        step = mapped;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (answer == 0 && step && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *step;
    return answer;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec read;
    (void)zone;
    int answer = clock_gettime(CLOCK_REALTIME, &read);
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return answer;
}

time_t time(time_t *kept) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (kept)
        *kept = read.tv_sec;
    return read.tv_sec;
}
