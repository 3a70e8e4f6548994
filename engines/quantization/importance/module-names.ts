// Module names: converts between the names of matrices in checkpoints, which .cimatrix files use, and in GGUF files, by the tables of the
// architectures. The matrices of all experts of a layer are one module: experts.gate_proj, up_proj or down_proj.
import { ServerError } from "../../../runtime/errors.ts";
import type { CheckpointArchitecture } from "../../files/checkpoint/architectures/architecture.ts";
import { architectures } from "../../files/checkpoint/architectures/registry.ts";
import { isLeftOut, placeOf } from "../../files/checkpoint/tensor-map.ts";
import type { Importance } from "./importance-file.ts";

const ending = ".weight";
const stack = /\.ffn_(gate|up|down)_exps$/;
/** Matrices whose columns have another order in GGUF files than in checkpoints, and the architectures to which this applies. */
const reordered = new Set(["blk.{l}.ssm_out"]);
const reorderedIn = new Set(["qwen3next", "qwen35", "qwen35moe"]);

/**
 * Returns the importance by tensor name. Names of modules are converted. Throws config_invalid for a module that the architecture does not
 * have, or whose columns are in another order in a GGUF file.
 */
export function byTensor(importance: Importance, architecture: string): Importance {
  if ([...importance.keys()].every((name) => name.endsWith(ending))) return importance;
  const named = new Map<string, Float32Array>();
  for (const [module, values] of importance) {
    if (isLeftOut(`${module}${ending}`)) continue;
    for (const tensor of tensorsOf(module, architecture)) named.set(tensor, values);
  }
  return named;
}

/** Converts names of tensors to names of modules. Throws config_invalid for a tensor without a module. */
export function byModule(importance: Importance, architecture: string): Map<string, Float32Array> {
  const known = namesOf(architecture);
  const modules = new Map<string, Float32Array>();
  for (const [tensor, values] of importance) {
    const layer = /^blk\.(\d+)\./.exec(tensor)?.[1];
    const target = tensor.slice(0, -ending.length).replace(/^blk\.\d+\./, "blk.{l}.");
    const module = known.modules.get(target);
    if (module === undefined || isReordered(target, architecture)) throw untranslatable(tensor, architecture);
    modules.set(module.replace("{l}", layer ?? ""), values);
  }
  return modules;
}

function tensorsOf(module: string, architecture: string): readonly string[] {
  const { tensors, prefixes } = namesOf(architecture);
  const place = placeOf(`${module}${ending}`, prefixes, (key) => tensors.has(key));
  const targets = place === null || place.expert !== null ? undefined : tensors.get(place.key);
  if (place === null || targets === undefined || targets.some((target) => isReordered(target, architecture))) {
    throw untranslatable(module, architecture);
  }
  return targets.map((target) => `${target.replace("{l}", String(place.layer))}${ending}`);
}

interface Names {
  readonly prefixes: readonly string[];
  /** Names in GGUF files without suffix, by key of the architectures' tables. */
  readonly tensors: ReadonlyMap<string, readonly string[]>;
  /** Names of modules by name in GGUF files. `{l}` stands for the layer number. */
  readonly modules: ReadonlyMap<string, string>;
}

function namesOf(architecture: string): Names {
  const tables = architectures.filter(({ name }) => name === architecture);
  const tensors = new Map<string, readonly string[]>();
  const modules = new Map<string, string>();
  for (const [key, targets] of tables.flatMap((one) => [...entriesOf(one)])) {
    tensors.set(key, targets);
    const [only, more] = targets;
    if (only !== undefined && more === undefined && !modules.has(only)) modules.set(only, moduleOf(key));
  }
  return { prefixes: tables.flatMap(({ prefixes = [] }) => prefixes), tensors, modules };
}

/** Yields each key of the architecture's table with its names in GGUF files. The experts of a layer are one module. */
function* entriesOf({ tensors }: CheckpointArchitecture): Generator<[string, readonly string[]]> {
  for (const [key, entry] of Object.entries(tensors)) {
    if (entry === null) continue;
    const targets = typeof entry === "string" ? [entry] : "to" in entry ? [entry.to] : entry.map(({ to }) => to);
    const [, experts] = /^(.*\.experts)\./.exec(key) ?? [];
    for (const target of experts === undefined ? [] : targets) {
      const [, part] = stack.exec(target) ?? [];
      if (part !== undefined) yield [`${experts}.${part}_proj`, [target]];
    }
    if (experts === undefined) yield [key, targets];
  }
}

function moduleOf(key: string): string {
  return key === "lm_head" ? key : `model.${key}`;
}

function isReordered(target: string, architecture: string): boolean {
  return reordered.has(target) && reorderedIn.has(architecture);
}

function untranslatable(name: string, architecture: string): ServerError {
  const message = `the importance matrix has "${name}", whose counterpart in the architecture ${architecture} is not known; use one of llama.cpp (GGUF or .imatrix), or calibration_file`;
  return new ServerError("config_invalid", message, { param: "imatrix" });
}
