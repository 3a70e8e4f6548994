// Entry point of the store's worker thread: opens the folder, then runs the read and write tasks one after another and
// answers in the same order. Both kinds of tasks wait for the disk and hash every byte, so they must not run in the
// step loop.
import { parentPort, workerData } from "node:worker_threads";
import { type ErrorRecord, toErrorRecord } from "../../../runtime/errors.ts";
import type { PrefixContent, StoreModel } from "./prefix-file.ts";
import { PrefixFolder, type PrefixStoreOptions, type WrittenFile } from "./prefix-folder.ts";
import type { ListedPrefix } from "./prefix-list.ts";

/** Data that the thread is started with. */
export interface StoreInit {
  readonly options: PrefixStoreOptions;
  readonly model: StoreModel;
}

export type StoreTask =
  | { readonly kind: "read"; readonly name: string }
  | { readonly kind: "remove"; readonly name: string }
  | { readonly kind: "write"; readonly content: PrefixContent; readonly expendable: string | null };

export type StoreAnswer =
  | { readonly kind: "opened"; readonly prefixes: readonly ListedPrefix[] }
  | { readonly kind: "refused"; readonly error: ErrorRecord }
  | { readonly kind: "read"; readonly content: PrefixContent }
  | { readonly kind: "written"; readonly file: WrittenFile }
  | { readonly kind: "removed" }
  | { readonly kind: "failed"; readonly reason: string };

if (!parentPort) throw new Error("the store's thread is a worker");
const port = parentPort;
const folder = open(workerData as StoreInit);
if (folder) port.on("message", (task: StoreTask) => answer(task, folder));

function open({ options, model }: StoreInit): PrefixFolder | null {
  try {
    const opened = new PrefixFolder(options, model);
    send({ kind: "opened", prefixes: opened.list() });
    return opened;
  } catch (error) {
    send({ kind: "refused", error: toErrorRecord(error) });
    return null;
  }
}

function answer(task: StoreTask, store: PrefixFolder): void {
  try {
    switch (task.kind) {
      case "read":
        sendContent(store.read(task.name));
        break;
      case "write":
        send({ kind: "written", file: store.write(task.content, task.expendable) });
        break;
      case "remove":
        store.remove(task.name);
        send({ kind: "removed" });
        break;
      default:
        task satisfies never;
    }
  } catch (error) {
    send({ kind: "failed", reason: (error as Error).message });
  }
}

/** Sends a prefix that was read. Its buffers contain nothing else, so they are transferred instead of copied. */
function sendContent(content: PrefixContent): void {
  send({ kind: "read", content }, [content.bytes.buffer as ArrayBuffer, content.tokens.buffer as ArrayBuffer]);
}

function send(message: StoreAnswer, moved: readonly ArrayBuffer[] = []): void {
  port.postMessage(message, moved);
}
