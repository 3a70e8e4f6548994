// Entry module of the worker thread that prepares one adapter. The thread's start function does the whole task.
import { type PrepareOptions, prepareAdapter } from "../../engines/files/lora/prepare.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import { ServerError } from "../../runtime/errors.ts";
import { makeFolder } from "../../runtime/host/make-folder.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";

export async function start({ init }: PlaceContext<PrepareOptions>): Promise<PreparedAdapter> {
  try {
    makeFolder(init.folder, 0o700);
  } catch (error) {
    const reason = (error as Error).message;
    throw new ServerError("lora_storage_unavailable", `the server cannot keep a prepared adapter: ${reason}`, {
      cause: error,
    });
  }
  return await prepareAdapter(init);
}
