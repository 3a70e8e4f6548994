// Owns how the heap of native code gives memory back. It holds buffers too: the server's process needs it as engines do.
/** glibc's number of the setting M_TRIM_THRESHOLD. */
const trimThreshold = -1;

/**
 * glibc learns from large blocks that were freed to serve such sizes from its heap, where they stay: after some bodies of
 * 50 MB it kept 250 MiB, and an engine that changes adapters kept gigabytes. With a threshold of our own it learns no more,
 * and each of its arenas keeps `keptBytes` of free memory at most. Other C libraries have no such setting.
 */
export async function limitNativeHeap(keptBytes: number): Promise<void> {
  if (process.platform !== "linux") return;
  try {
    const { default: koffi } = await import("koffi");
    koffi.load("libc.so.6").func("int mallopt(int, int)")(trimThreshold, keptBytes);
  } catch {
    // Not glibc, or koffi is not there: then the heap keeps what it keeps.
  }
}
