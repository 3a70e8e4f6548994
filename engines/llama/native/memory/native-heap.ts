// Native heap: makes the C heap return free memory to the system. Also used by the server process, because its buffers
// are in this heap.
/** Parameter number of M_TRIM_THRESHOLD in glibc. */
const trimThreshold = -1;

/**
 * Limits the free memory that each glibc arena keeps to `keptBytes`. By default, glibc raises its thresholds when large
 * blocks are freed. It then allocates such blocks from its heap, and freed blocks stay in the heap. After some request
 * bodies of 50 MB the heap kept 250 MiB, and for an engine that changes adapters it kept gigabytes. A fixed threshold
 * prevents this. Other C libraries have no such setting.
 */
export async function limitNativeHeap(keptBytes: number): Promise<void> {
  if (process.platform !== "linux") return;
  try {
    const { default: koffi } = await import("koffi");
    koffi.load("libc.so.6").func("int mallopt(int, int)")(trimThreshold, keptBytes);
  } catch {
    // The error is ignored: the C library is not glibc, or koffi is missing. The heap then keeps its default behaviour.
  }
}
