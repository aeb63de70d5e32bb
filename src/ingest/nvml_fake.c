/* A driver library with two GPUs, for tests. Faults are compiled in with -D. Layouts and return codes follow nvml.h. */
#include <stddef.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, REFUSED = 3, INSUFFICIENT_SIZE = 7, LOST = 15 };

typedef struct { int index; } device;
static device devices[2] = {{0}, {1}};

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out) {
    if (index > 1) return INVALID_ARGUMENT;
#ifdef NO_HANDLE
    if (index == 0) return LOST;
#endif
    *out = &devices[index];
    return SUCCESS;
}

static int text(char *out, unsigned length, const char *value) {
    if (strlen(value) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return SUCCESS;
}

int nvmlDeviceGetUUID(device *d, char *out, unsigned length) { return text(out, length, d->index ? "GPU-fake-1" : "GPU-fake-0"); }
int nvmlDeviceGetName(device *d, char *out, unsigned length) { (void)d; return text(out, length, "Fake H100 80GB"); }

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;

int nvmlDeviceGetMemoryInfo_v2(device *d, memory *out) {
#ifdef GPU_LOST
    if (d->index == 0) return LOST;
#endif
    unsigned long long gib = 1ULL << 30;
    out->total = 80 * gib;
    out->reserved = 0;
    out->used = (d->index ? 1 : 60) * gib;
    out->free = out->total - out->used;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending) {
    (void)d;
#ifdef MIG
    *current = 1;
#else
    *current = 0;
#endif
    *pending = *current;
    return SUCCESS;
}

#ifndef OLD_LIBRARY
#ifdef NOT_SUPPORTED
#define VALUE(write) return REFUSED
#else
#define VALUE(write) write; return SUCCESS
#endif

int nvmlDeviceGetUtilizationRates(device *d, unsigned out[2]) { (void)d; (void)out; VALUE(out[0] = d->index ? 0 : 75; out[1] = 0); }
int nvmlDeviceGetPowerUsage(device *d, unsigned *milliwatts) { (void)d; (void)milliwatts; VALUE(*milliwatts = d->index ? 70000 : 350500); }

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } process;

int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process *out) {
#ifdef NOT_SUPPORTED
    (void)d; (void)count; (void)out;
    return REFUSED;
#else
    unsigned held = d->index ? 0 : 2, room = *count;
    *count = held;
    if (held == 0) return SUCCESS;
    if (out == NULL || room < held) return INSUFFICIENT_SIZE;
    memset(out, 0, held * sizeof *out);
    out[0].pid = 42;
    out[1].pid = 41;
    return SUCCESS;
#endif
}
#endif
