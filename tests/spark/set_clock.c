/* The time of day of a process and all that it starts, set forward and back while they run: loaded before other libraries
   (LD_PRELOAD), it adds the seconds that the file SET_CLOCK_FILE holds (8 bytes) to every answer. Clocks that only go
   forward stay as they are. fault_surroundings.py compiles it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("SET_CLOCK_FILE");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped != MAP_FAILED) offset = mapped;
  close(file);
}

static int64_t seconds(void) { return offset ? *offset : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += seconds();
  return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int result = (int)syscall(SYS_gettimeofday, now, zone);
  if (result == 0 && now) now->tv_sec += seconds();
  return result;
}

time_t time(time_t *kept) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (kept) *kept = now.tv_sec;
  return now.tv_sec;
}

/* Whoever waits until a time of day means the one that it was told. A monotonic time, which these may get too, counts from
   the start of the machine: it has never seen a thousand million seconds. */
static const struct timespec *real(const struct timespec *until, struct timespec *room) {
  if (until == NULL || until->tv_sec < 1000000000) return until;
  *room = *until;
  room->tv_sec -= seconds();
  return room;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
  static int (*next)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  struct timespec room;
  /* There are two; without a version the linker may give the one of 1999. */
  if (!next) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!next) next = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  return next(condition, mutex, real(until, &room));
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
  static int (*next)(sem_t *, const struct timespec *);
  struct timespec room;
  if (!next) next = dlsym(RTLD_NEXT, "sem_timedwait");
  return next(semaphore, real(until, &room));
}
