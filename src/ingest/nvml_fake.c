/* A driver library with two GPUs, for tests. Faults are compiled in with -D. Layouts and return codes follow nvml.h. */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, REFUSED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10, LOST = 15 };
enum { ABSENT = 0xFFFFFFFF };

/* A GPU, or a slice of GPU 0 (`slice` is its place in the list plus one). */
typedef struct { int index, slice, pending; } device;
static device devices[2] = {{0, 0, 2}, {1, 0, 0}};

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
#ifdef NO_GPU
    *count = 0;
#else
    *count = 2;
#endif
    return SUCCESS;
}

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

int nvmlSystemGetDriverVersion(char *out, unsigned length) { return text(out, length, "570.1.2"); }

int nvmlDeviceGetUUID(device *d, char *out, unsigned length) {
    const char *slice[] = {"MIG-fake-a", "MIG-fake-b"};
    return text(out, length, d->slice ? slice[d->slice - 1] : d->index ? "GPU-fake-1" : "GPU-fake-0");
}

int nvmlDeviceGetName(device *d, char *out, unsigned length) {
#ifdef MIG_WITHOUT_PROFILE
    return text(out, length, "Fake H100 80GB");
#else
    const char *slice[] = {"Fake H100 80GB MIG 1g.10gb", "Fake H100 80GB MIG 3g.40gb"};
    return text(out, length, d->slice ? slice[d->slice - 1] : "Fake H100 80GB");
#endif
}

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;

int nvmlDeviceGetMemoryInfo_v2(device *d, memory *out) {
#ifdef GPU_LOST
    if (d->index == 0) return LOST;
#endif
#ifdef HANG
    for (;;) pause();
#endif
#ifdef HANG_LATER
    static int calls = 0;
    while (++calls > 4) pause();
#endif
    unsigned long long gib = 1ULL << 30;
    out->reserved = 0;
    if (d->slice) {
        out->total = (d->slice == 1 ? 10 : 40) * gib;
        out->used = (d->slice == 1 ? 6 : 0) * gib;
    } else {
        out->total = 80 * gib;
        out->used = (d->index ? 1 : 60) * gib;
    }
    out->free = out->total - out->used;
    return SUCCESS;
}

#if defined(MIG) || defined(MIG_UNLISTED) || defined(MIG_WITHOUT_PROFILE)
#define SPLIT(d) ((d)->index == 0)
#else
#define SPLIT(d) 0
#endif

int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending) {
    *current = *pending = SPLIT(d);
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

int nvmlDeviceGetTotalEnergyConsumption(device *d, unsigned long long *millijoules) {
    (void)d; (void)millijoules;
    VALUE(*millijoules = d->index ? 250ULL : 5000000000500ULL);
}

int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *celsius) { (void)d; (void)sensor; (void)celsius; VALUE(*celsius = d->index ? 31 : 64); }

int nvmlDeviceGetTotalEccErrors(device *d, int kind, int counter, unsigned long long *errors) {
    (void)d; (void)errors;
    /* Uncorrected, since the driver was loaded. */
    if (kind != 1 || counter != 0) return INVALID_ARGUMENT;
#ifdef ECC
    VALUE(*errors = d->index ? 0 : 3);
#else
    VALUE(*errors = 0);
#endif
}

int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, unsigned long long *reasons) {
    (void)d; (void)reasons;
#if defined(THROTTLED)
    /* The power brake, the hardware's slowdown and the power cap / heat and an idle GPU. */
    VALUE(*reasons = d->index ? 0x21 : 0x8c);
#else
    /* The power cap / an idle GPU: no fault. */
    VALUE(*reasons = d->index ? 0x1 : 0x4);
#endif
}

typedef struct {
    unsigned id, scope;
    long long at, latency;
    unsigned type, code;
    union { double d; unsigned u32; unsigned long long u64; } value;
} field;

int nvmlDeviceGetFieldValues(device *d, int count, field *fields) {
    for (int i = 0; i < count; i++) {
        fields[i].code = SUCCESS;
        fields[i].type = 1;
        if (fields[i].id != 145) fields[i].code = INVALID_ARGUMENT;
#ifdef ROW_REMAP
        fields[i].value.u32 = d->index == 0;
#else
        fields[i].value.u32 = 0;
        (void)d;
#endif
#ifdef NOT_SUPPORTED
        fields[i].code = REFUSED;
#endif
    }
    return SUCCESS;
}

typedef struct { device *of; unsigned long long type, data; unsigned gpu_instance, compute_instance; } event;
typedef struct { device *of; int held; } set;
static set sets[2];

int nvmlEventSetCreate(set **out) {
    for (int i = 0; i < 2; i++) {
        if (sets[i].held) continue;
        sets[i].held = 1;
        *out = &sets[i];
        return SUCCESS;
    }
    return INSUFFICIENT_SIZE;
}

int nvmlEventSetFree(set *s) { s->held = 0; s->of = NULL; return SUCCESS; }

int nvmlDeviceRegisterEvents(device *d, unsigned long long types, set *s) {
    if (types != 8) return INVALID_ARGUMENT;
#ifdef NOT_SUPPORTED
    (void)d; (void)s;
    return REFUSED;
#else
    s->of = d;
    return SUCCESS;
#endif
}

int nvmlEventSetWait_v2(set *s, event *out, unsigned timeout) {
    if (timeout != 0) return INVALID_ARGUMENT;
#ifdef XID
    if (s->of != NULL && s->of->pending > 0) {
        memset(out, 0, sizeof *out);
        out->of = s->of;
        out->type = 8;
        out->data = s->of->pending == 2 ? 13 : 79;
        s->of->pending--;
        return SUCCESS;
    }
#endif
    (void)s; (void)out;
    return TIMEOUT;
}

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } process;

int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process *out) {
#ifdef NOT_SUPPORTED
    (void)d; (void)count; (void)out;
    return REFUSED;
#else
    unsigned held = d->slice == 1 ? 1 : d->slice == 2 || d->index ? 0 : 2, room = *count;
    *count = held;
    if (held == 0) return SUCCESS;
    if (out == NULL || room < held) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < held; i++) {
        out[i].pid = 42 - i;
        /* The driver of a virtual machine does not know what the second one holds. */
        out[i].memory = i == 0 ? 5ULL << 30 : ~0ULL;
        out[i].gpu_instance = out[i].compute_instance = ABSENT;
    }
    return SUCCESS;
#endif
}

#ifndef MIG_UNLISTED
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *count) { (void)d; *count = 7; return SUCCESS; }

static device slices[2] = {{0, 1, 0}, {0, 2, 0}};

/* Places 0 and 3 hold a slice. */
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **out) {
    if (!SPLIT(d)) return INVALID_ARGUMENT;
    if (index != 0 && index != 3) return NOT_FOUND;
    *out = &slices[index == 3];
    return SUCCESS;
}

#ifndef MIG_WITHOUT_PROFILE
int nvmlDeviceGetGpuInstanceId(device *d, unsigned *id) { *id = d->slice == 1 ? 7 : 2; return SUCCESS; }
int nvmlDeviceGetComputeInstanceId(device *d, unsigned *id) { *id = d->slice == 1 ? 0 : 1; return SUCCESS; }
#endif

typedef struct { unsigned units[6], gpu_slices, compute_slices; unsigned long long mib; } attributes;

int nvmlDeviceGetAttributes_v2(device *d, attributes *out) {
    memset(out, 0, sizeof *out);
    out->gpu_slices = d->slice == 1 ? 1 : 3;
    out->compute_slices = d->slice == 1 ? 1 : 2;
    out->mib = d->slice == 1 ? 9984 : 40320;
    return SUCCESS;
}
#endif
#endif
