import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { NativeBatchView } from "../../../engines/llama/native/memory/native-batch.ts";
import { NativeContext, type NativeHandles } from "../../../engines/llama/native/native-context.ts";
import type { TurnLock } from "../../../engines/llama/native/turn-lock.ts";

/** Returns a context that records its lock operations and passes. Each pass returns `status`. */
function createContext(status = 0) {
  const notes: string[] = [];
  const lockOf = (name: string) => ({
    acquire: () => notes.push(`${name} taken`),
    release: () => notes.push(`${name} left`),
    close: () => {},
  });
  const decode = () => {
    notes.push("pass");
    return status;
  };
  const nothing = () => null;
  const functions = {
    modelGetVocab: nothing,
    getMemory: nothing,
    attachThreads: nothing,
    setAdapters: () => 0,
    decode,
  };
  const cores = { threadPool: { pointer: null, free: nothing }, computeLock: lockOf("cores") };
  const handles = { functions, model: null, context: null, cores };
  const context = new NativeContext(handles as unknown as NativeHandles);
  const view = { finish: () => {}, batch: { n_tokens: 1 } } as unknown as NativeBatchView;
  return { context, view, notes, list: lockOf("list") as unknown as TurnLock };
}

describe("a pass of a llama.cpp context", () => {
  it("waits for its adapters to be loaded before it locks the cores, and for nothing the next time", () => {
    const { context, view, notes, list } = createContext();
    context.setAdapter(null, list);
    context.decode(view);
    assert.deepEqual(notes.splice(0), ["list taken", "cores taken", "pass", "cores left", "list left"]);
    context.decode(view);
    assert.deepEqual(notes, ["cores taken", "pass", "cores left"]);
  });

  it("releases both locks when it fails, and locks the list again the next time", () => {
    const { context, view, notes, list } = createContext(-3);
    context.setAdapter(null, list);
    for (let i = 0; i < 2; i++) {
      assert.throws(() => context.decode(view), { code: "model_failed" });
      assert.deepEqual(notes.splice(0), ["list taken", "cores taken", "pass", "cores left", "list left"]);
    }
  });
});
