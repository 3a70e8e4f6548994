// Owns how the heap of native code, buffers among it, gives memory back: in the process of the server and in those of engines.
/** glibc's number of the setting M_TRIM_THRESHOLD, and bytes of free heap that are kept. */
const trimThreshold = -1;
const keptBytes = 2 ** 20;

/**
 * glibc learns from large blocks that were freed to serve such sizes from its heap, where they stay: after some bodies of
 * 50 MB it kept 250 MiB, and an engine that changes adapters kept gigabytes. With a threshold of our own it learns no more.
 * Other libraries have no such setting.
 */
export async function limitNativeHeap(): Promise<void> {
  if (process.platform !== "linux") return;
  try {
    const { default: koffi } = await import("koffi");
    koffi.load("libc.so.6").func("int mallopt(int, int)")(trimThreshold, keptBytes);
  } catch {
    // Not glibc, or koffi is not there: then the heap keeps what it keeps.
  }
}
