// Flags of the commands without settings: the specs with which they parse their arguments, and from which the shells' completions are made.
// Loads no command, because a shell may run `troupe completions` at each start.
import type arg from "arg";

const help = { "--help": Boolean, "-h": "--help" } as const;
const json = { "--json": Boolean } as const;
const modelId = { "--model-id": String, "-m": "--model-id" } as const;
const quantizedFile = { "--quantized-file": String, "-f": "--quantized-file" } as const;

export const modelsFlags = { ...json, ...help } as const satisfies arg.Spec;

export const cacheFlags = {
  list: { ...json, ...help },
  delete: { ...modelId, "--yes": Boolean, "-y": "--yes", ...help },
} as const satisfies Record<string, arg.Spec>;

export const quantizeFlags = {
  ...{ ...modelId, "--isq": [String], "--output": String, "-o": "--output", ...quantizedFile },
  ...{ "--imatrix": String, "--topology": String, "--isq-organization": String, "--dtype": String },
  ...{ "--hf-overrides": String, "--tok-model-id": String, "--arch": String, "-a": "--arch", "--gqa": String },
  ...{ "--matformer-config-path": String, "--matformer-slice-name": String },
  ...{ "--uqff": Boolean, "--uqff-base-model": String, "--uqff-repo-id": String, "--from-uqff": String },
  ...{ "--threads": String, "--no-readme": Boolean },
  ...help,
} satisfies arg.Spec;

export const uqffFlags = {
  ...{ ...modelId, "--quant": String, ...json },
  ...{ "--write": Boolean, "--base-model": String, "--repo-id": String },
  ...help,
} as const satisfies arg.Spec;

export const loginFlags = { "--token": String, ...help } as const satisfies arg.Spec;

export const doctorFlags = { ...modelId, ...quantizedFile, ...json, ...help } as const satisfies arg.Spec;
