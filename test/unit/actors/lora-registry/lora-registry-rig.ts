// LoRA registry rig for tests of a model's adapters: a fake model that records its adapters, and a fake preparation that
// derives an adapter from its path. Both respond immediately, or when the test settles the call.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setImmediate, setTimeout as sleep } from "node:timers/promises";
import { AdapterLoadLock } from "../../../../actors/lora-registry/adapter-load-lock.ts";
import { ModelAdapters, type PreloadedAdapter } from "../../../../actors/lora-registry/model-adapters.ts";
import type { ModelProtocol } from "../../../../actors/messages.ts";
import type { AdapterLimits } from "../../../../engines/engine.ts";
import type { PrepareOptions } from "../../../../engines/files/lora/prepare.ts";
import type { PreparedAdapter } from "../../../../engines/files/lora/prepared-adapter.ts";
import type { Ref } from "../../../../runtime/actor/ref.ts";
import { type ErrorCode, ServerError } from "../../../../runtime/errors.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

/** Pending call to the fake model or to the fake preparation. */
export interface Pending {
  readonly what: string;
  settle(error?: Error): void;
}

/** Responds to calls immediately, or holds them until the test settles them. */
export class Outside {
  isManual = false;
  readonly pending: Pending[] = [];

  ask<T>(what: string, answer: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      const settle = (error?: Error) => {
        const index = this.pending.indexOf(entry);
        if (index >= 0) this.pending.splice(index, 1);
        if (error !== undefined) return reject(error);
        try {
          resolve(answer());
        } catch (thrown) {
          reject(thrown);
        }
      };
      const entry = { what, settle };
      if (this.isManual) this.pending.push(entry);
      else settle();
    });
  }

  /** Settles the oldest call of this kind, and waits for one if there is none. */
  async settle(what: RegExp, error?: Error): Promise<void> {
    await eventually(() => {
      const found = this.pending.find((entry) => what.test(entry.what));
      assert.ok(found, `nothing like ${what} is pending: ${this.pending.map((entry) => entry.what)}`);
      found.settle(error);
    });
    await rest();
  }
}

/** Runs the event loop until nothing is pending except disk operations and calls that the test must settle. */
export async function rest(): Promise<void> {
  await setImmediate();
}

/** Repeats the check for a short time until it passes, because changes on disk take time. */
export async function eventually(check: () => void): Promise<void> {
  const giveUpAt = performance.now() + 2000;
  for (;;) {
    try {
      return check();
    } catch (error) {
      if (performance.now() > giveUpAt) throw error;
      await sleep(1);
    }
  }
}

/** Fake place (worker thread or process) of the model. */
export class FakeModel implements Ref<ModelProtocol> {
  readonly place = "model:tiny";
  readonly name = "model";
  readonly held = new Map<number, string>();
  /** Paths of the adapters that are or were loaded, by id. */
  readonly paths = new Map<number, string>();
  readonly asked: string[] = [];
  /** Ids of adapters whose loading completed after the call had timed out. */
  readonly late = new Set<number>();
  /** Called before an adapter is freed. */
  onFree: (id: number) => void = () => {};
  readonly #outside: Outside;
  readonly #waiting = new Set<(error: Error) => void>();
  #isDead = false;

  constructor(outside: Outside) {
    this.#outside = outside;
  }

  ask = ((method: string, message: { id: number; generation: string; path: string }) => {
    if (this.#isDead) return Promise.reject(gone());
    this.asked.push(`${method} ${message.id}`);
    const answered = this.#outside.ask(`${method} ${message.id}`, () => {
      if (!this.#isDead) this.#obey(method, message);
    });
    return new Promise<void>((resolve, reject) => {
      this.#waiting.add(reject);
      answered
        .catch((error) => {
          if (error instanceof ServerError && error.code === "timeout") this.late.add(message.id);
          throw error;
        })
        .then(resolve, reject)
        .finally(() => this.#waiting.delete(reject));
    });
  }) as unknown as Ref<ModelProtocol>["ask"];

  tell(): void {
    assert.fail("adapters are asked for, never told of");
  }

  die(): void {
    this.#isDead = true;
    this.held.clear();
    for (const reject of this.#waiting) reject(gone());
  }

  #obey(method: string, { id, generation, path }: { id: number; generation: string; path: string }): void {
    if (method === "loadAdapter") {
      assert.ok(existsSync(path), `the file of adapter ${id} is there when it is loaded`);
      assert.ok(!this.held.has(id), `adapter ${id} is loaded once`);
      assert.ok(![...this.held.values()].includes(generation), `generation ${generation} is in memory twice`);
      this.held.set(id, generation);
      this.paths.set(id, path);
    } else {
      assert.equal(method, "unloadAdapter");
      this.onFree(id);
      assert.ok(this.held.delete(id) || this.late.delete(id), `adapter ${id} is there to be freed`);
    }
  }
}

function gone(): ServerError {
  return new ServerError("peer_gone", "the model is gone");
}

/** Returns the hash of the adapter at a path such as "/a?bytes=100&rank=4#x". Ignores the text from "#" on. */
export function generationOf(path: string): string {
  return createHash("sha256")
    .update(path.split("#")[0] as string)
    .digest("hex");
}

export interface RigOptions {
  readonly limits?: Partial<AdapterLimits>;
  readonly preloaded?: readonly PreloadedAdapter[];
  readonly gate?: AdapterLoadLock;
  readonly root?: string | null;
  /** Path of a real model. If set, adapters are prepared on a worker thread, as in a server. */
  readonly modelPath?: string;
}

export const generousLimits: AdapterLimits = { maxAdapters: 16, maxRank: 256, maxBytes: 1_000_000 };

/** Folders to remove at exit, because tasks that a test leaves running may still write into them. */
const folders = new Set<string>();
process.once("exit", () => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Creates a loaded model "tiny" with adapters. */
export async function createAdapters(context: Pick<TestContext, "after"> | null, options: RigOptions = {}) {
  const folder = mkdtempSync(join(tmpdir(), "troupe-adapters-"));
  const remove = () => rmSync(folder, { recursive: true, force: true });
  folders.add(folder);
  context?.after(remove);
  const outside = new Outside();
  const log = recordingLog();
  const preparing: PrepareOptions[] = [];
  const rig = {
    remove,
    outside,
    log,
    preparing,
    /** Whether the model's attached place (worker thread or process) is being stopped. */
    isEnding: false,
    model: new FakeModel(outside),
    /** Error with which tasks that need the loaded model fail; null = they run. */
    unavailable: null as ServerError | null,
    prepare(options: PrepareOptions, signal: AbortSignal): Promise<PreparedAdapter> {
      preparing.push(options);
      const prepared = outside.ask(`prepare ${options.source}`, () => prepareFake(options));
      return new Promise((resolve, reject) => {
        signal.addEventListener("abort", () => reject(new ServerError("cancelled", "cancelled")), { once: true });
        prepared.then(resolve, reject);
      });
    },
    load: (alias: string, path: string, more: { replace?: boolean; expectedGeneration?: string | null } = {}) =>
      adapters.load({ model: "tiny", alias, path, replace: false, expectedGeneration: null, ...more }),
    unload: (alias: string, expectedGeneration: string | null = null) =>
      adapters.unload({ model: "tiny", alias, expectedGeneration }),
    /** Ends the model's place (worker thread or process) and attaches a new one. */
    async restart(): Promise<void> {
      rig.model.die();
      rig.model = new FakeModel(outside);
      await adapters.attach(rig.model, () => rig.isEnding);
    },
    /** Returns the hashes of the adapter versions that the engine holds, sorted. */
    held: () => [...rig.model.held.values()].sort(),
    /** Waits until there are `count` adapter files. */
    filesAre: (count: number) => eventually(() => assert.equal(readdirSync(folder).length, count)),
  };
  const adapters = new ModelAdapters({
    modelId: "tiny",
    modelPath: options.modelPath ?? "/models/tiny.gguf",
    settings: { limits: { ...generousLimits, ...options.limits }, preloaded: options.preloaded ?? [] },
    folder,
    root: options.root ?? null,
    gate: options.gate ?? new AdapterLoadLock(),
    log,
    whileLoaded: (task) => (rig.unavailable ? Promise.reject(rig.unavailable) : task(rig.model)),
    ...(options.modelPath ? {} : { prepare: (what, signal) => rig.prepare(what, signal) }),
  });
  if (!options.preloaded) {
    await adapters.attach(rig.model, () => rig.isEnding);
    adapters.serverStarted();
  }
  return Object.assign(rig, { adapters });
}

export type Rig = Awaited<ReturnType<typeof createAdapters>>;

function prepareFake({ source, folder }: PrepareOptions): PreparedAdapter {
  const settings = new URL(source, "file:///").searchParams;
  const generation = generationOf(source);
  const path = join(folder, `${generation}.gguf`);
  mkdirSync(folder);
  writeFileSync(path, source);
  return { generation, path, rank: Number(settings.get("rank") ?? 8), bytes: Number(settings.get("bytes") ?? 100) };
}

/** Returns a predicate for assert.rejects and assert.throws that checks the error's code and parameter. */
export function withCode(code: ErrorCode, param?: string, text = /./) {
  return (error: unknown) => {
    assert.ok(error instanceof ServerError, String(error));
    assert.equal(error.code, code, error.message);
    if (param !== undefined) assert.equal(error.param, param);
    assert.match(error.message, text);
    return true;
  };
}
