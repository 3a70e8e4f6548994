// Native heap: makes the C heap return free memory to the system. The server process needs it too, because the heap
// holds its buffers.
/** glibc's parameter number of M_TRIM_THRESHOLD. */
const trimThreshold = -1;

/**
 * Bounds the free memory that each glibc arena keeps to `keptBytes`. By default glibc adapts to freed large blocks and
 * then serves such sizes from its heap, where they stay: after some request bodies of 50 MB it kept 250 MiB, and an
 * engine that changes adapters kept gigabytes. A fixed threshold switches that adaptation off. Other C libraries have
 * no such setting.
 */
export async function limitNativeHeap(keptBytes: number): Promise<void> {
  if (process.platform !== "linux") return;
  try {
    const { default: koffi } = await import("koffi");
    koffi.load("libc.so.6").func("int mallopt(int, int)")(trimThreshold, keptBytes);
  } catch {
    // Not glibc, or koffi is missing: the heap keeps its default behaviour.
  }
}
