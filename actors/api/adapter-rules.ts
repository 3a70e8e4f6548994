// Adapter rules: validates requests to load or unload an adapter: the alias and the combination of fields. These checks do not
// depend on which adapters are loaded.

import { ServerError } from "../../runtime/errors.ts";
import type { LoadAdapterRequest } from "./lora-adapters.ts";
import { aliasFault, maxAliasBytes } from "./lora-alias.ts";

type LoadPolicy = Pick<LoadAdapterRequest, "replace" | "expectedGeneration">;

const generationForm = /^[0-9a-f]{64}$/;

/** Returns the alias without surrounding white space. Throws invalid_lora_name if the alias is invalid. */
export function checkedAlias(given: string): string {
  const alias = given.trim();
  const fault = aliasFault(alias);
  if (fault === null) return alias;
  throw new ServerError(
    "invalid_lora_name",
    `the name of an adapter is 1 to ${maxAliasBytes} bytes of printable UTF-8; this one ${fault}`,
    { param: "lora_name" },
  );
}

/**
 * Checks that `expectedGeneration` (content hash of the adapter to replace) is used only with `replace`. Throws
 * invalid_lora_load_policy, invalid_value.
 */
export function checkLoadPolicy({ replace, expectedGeneration }: LoadPolicy): void {
  if (expectedGeneration === null) return;
  if (!replace) {
    throw new ServerError(
      "invalid_lora_load_policy",
      "expected_generation names the adapter to replace: it requires load_inplace to be true",
      { param: "expected_generation" },
    );
  }
  checkExpectedGeneration(expectedGeneration);
}

/** Checks the format of an expected content hash (`generation` in the HTTP API). Throws invalid_value. */
export function checkExpectedGeneration(expected: string | null): void {
  if (expected === null || generationForm.test(expected)) return;
  throw new ServerError(
    "invalid_value",
    "expected_generation is 64 lower-case hexadecimal digits, as in the list of adapters",
    { param: "expected_generation" },
  );
}
