import { describe, it } from "node:test";
import { assertRefused, textWith } from "./resolve.ts";

describe("a file of 0.9.4", () => {
  it("is rejected with what to write instead, with its own values", () => {
    const cases: [header: string, line: string, instead: string][] = [
      ["[paged_attn]", "memory_mb = 4096", 'kv_cache = "4096MiB" instead'],
      ["[paged_attn]", "pa_gpu_mem = 4096", 'kv_cache = "4096MiB" instead'],
      ["[paged_attn]", "context_len = 65536", 'kv_cache = "65536tokens" instead'],
      ["[paged_attn]", "pa_ctxt_len = 65536", 'kv_cache = "65536tokens" instead'],
      ["[paged_attn]", 'context_len = "long"', 'kv_cache = "Ntokens" instead'],
      ["[paged_attn]", "memory_fraction = 0.8", "gpu_memory_utilization = 0.8 instead"],
      ["[[models]]", "max_seq_len = 4096", "max_model_len = 4096 instead"],
      ["[[models]]", "max_batch_size = 4", "max_seqs = 4 at the top of the file instead"],
    ];
    for (const [header, line, instead] of cases) {
      const [name] = line.split(" ");
      const message = `troupe.toml:3: "${name}" is a key of 0.9.4; write ${instead}`;
      assertRefused({ text: textWith(header, line) }, message);
    }
  });
});
