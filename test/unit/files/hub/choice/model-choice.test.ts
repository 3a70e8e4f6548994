import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { chooseModel, preferredQuantisations } from "../../../../../engines/files/hub/choice/model-choice.ts";
import { parseHubSource } from "../../../../../engines/files/hub/hub-source.ts";

const choose = (paths: readonly string[], wanted: string | null = null, preferred = preferredQuantisations) =>
  chooseModel(paths, { place: '"o/n"', wanted, preferred });
const refused = (message: RegExp) => ({ name: "ServerError", code: "model_file_invalid", message });
const named = (...quantisations: string[]) => quantisations.map((quantisation) => `Tiny-1.5B-${quantisation}.gguf`);

describe("a name on the hub", () => {
  it("is read with its revision and its file or quantisation", () => {
    const at = (revision: string, wanted: string | null) => ({ repo: "o-w/N.1_x-GGUF", revision, wanted });
    assert.deepEqual(parseHubSource("o-w/N.1_x-GGUF"), at("main", null));
    assert.deepEqual(parseHubSource("o-w/N.1_x-GGUF:Q4_K_M"), at("main", "Q4_K_M"));
    assert.deepEqual(parseHubSource("o-w/N.1_x-GGUF@refs/pr/1:a/b c.gguf"), at("refs/pr/1", "a/b c.gguf"));
    assert.deepEqual(parseHubSource("o-w/N.1_x-GGUF@v1.0"), at("v1.0", null));
    assert.deepEqual(parseHubSource("o-w/N.1_x-GGUF", "m.gguf"), at("main", "m.gguf"));
  });

  it("is nothing that looks like a path", () => {
    const paths = [
      "name",
      "/o/n",
      "./n",
      "../n",
      "o/n/x",
      "~/n",
      "o/n.gguf",
      "C:\\o\\n",
      "o/n@../x",
      "o/n@",
      "o/n:",
      "o/..",
      "o/-n",
    ];
    for (const path of [...paths, "", "/", "o/", "o/a..b", "o/a--b", "o /n", "o/n@a//b"]) {
      assert.equal(parseHubSource(path), null, path);
    }
  });
});

describe("the model that is chosen by size", () => {
  const gib = 2 ** 30;
  const sizes: ReadonlyMap<string, number | null> = new Map([
    ["a-Q8_0.gguf", 8 * gib],
    ["a-Q4_K_M.gguf", 4 * gib],
    ["a-Q2_K.gguf", 2 * gib],
    ["a-Q6_K-00001-of-00002.gguf", 3 * gib],
    ["a-Q6_K-00002-of-00002.gguf", 3 * gib],
    ["a-BF16.gguf", 15 * gib],
    ["a-F16.gguf", 15 * gib],
    ["mmproj-a.gguf", 1 * gib],
  ]);
  const within = (bytes: number, known = sizes) =>
    chooseModel([...known.keys()], {
      place: "o/n",
      wanted: null,
      preferred: preferredQuantisations,
      room: { bytes, sizes: known },
    })[0];

  it("is the largest quantized one that fits, with all its shards, else the smallest", () => {
    const found = [100, 7, 5, 3, 1].map((room) => within(room * gib));
    assert.deepEqual(found, [
      "a-Q8_0.gguf",
      "a-Q6_K-00001-of-00002.gguf",
      "a-Q4_K_M.gguf",
      "a-Q2_K.gguf",
      "a-Q2_K.gguf",
    ]);
  });

  it("is the best source if there are only floats, and one of the usual ones if no size is known", () => {
    const only = (pattern: RegExp) => new Map([...sizes].filter(([name]) => pattern.test(name)));
    assert.equal(within(gib, only(/F16/)), "a-BF16.gguf");
    assert.equal(within(gib, new Map([...only(/Q[48]/).keys()].map((name) => [name, null]))), "a-Q4_K_M.gguf");
  });
});

describe("the model that is chosen", () => {
  it("is the only one, whatever its name", () => {
    assert.deepEqual(choose(["README.md", "weights.gguf"]), ["weights.gguf"]);
  });

  it("is the best of the usual quantisations where there are several", () => {
    for (const [index, best] of preferredQuantisations.entries()) {
      assert.deepEqual(choose(named("IQ2_XXS", ...preferredQuantisations.slice(index))), named(best));
    }
    assert.deepEqual(choose(["a-fp16.gguf", "a-q5_1.gguf"]), ["a-fp16.gguf"]);
  });

  it("is the one whose quantisation is named, in any case and exactly", () => {
    const paths = named("Q4_K_M", "Q4_K_S", "UD-Q4_K_M", "Q4_0", "Q4_0_4_4", "BF16", "F16", "IQ4_NL", "MXFP4_MOE");
    for (const path of paths) {
      const quantisation = path.slice("Tiny-1.5B-".length, -".gguf".length);
      for (const wanted of [quantisation, quantisation.toLowerCase(), path, path.toLowerCase(), path.slice(0, -5)]) {
        assert.deepEqual(choose(paths, wanted), [path], wanted);
      }
    }
    assert.deepEqual(choose(["q4_k_m.gguf", "x.Q4_K_S.gguf"], "Q4_K_S"), ["x.Q4_K_S.gguf"]);
    assert.deepEqual(choose(["Q8_0/model.gguf", "Q4_0/model.gguf"], "q4_0"), ["Q4_0/model.gguf"]);
  });

  it("is never a projector, statistics or only a vocabulary", () => {
    const others = [
      "mmproj-F16.gguf",
      "model-mmproj.Q8_0.gguf",
      "tiny.imatrix.gguf",
      "imatrix.gguf",
      "ggml-vocab-x.gguf",
    ];
    assert.deepEqual(choose([...others, "m-Q8_0.gguf"]), ["m-Q8_0.gguf"]);
    assert.throws(() => choose(others), refused(/^there is no GGUF model in "o\/n"$/));
    assert.throws(
      () => choose([...others, "m.gguf"], others[0]),
      refused(/^"mmproj-F16.gguf" .* is not a language model/),
    );
  });

  it("has all of its shards, in their order", () => {
    const shards = ["q/m-Q8_0-00001-of-00002.gguf", "q/m-Q8_0-00002-of-00002.gguf"];
    for (const wanted of [null, "Q8_0", "m-q8_0", shards[1]!]) {
      assert.deepEqual(choose([...shards].reverse(), wanted), shards);
    }
    assert.throws(
      () => choose(shards.slice(1)),
      refused(/one of 2 shards; missing: "q\/m-Q8_0-00001-of-00002\.gguf"$/),
    );
  });

  it("must be specified if the file names are ambiguous", () => {
    assert.throws(
      () => choose(["a.gguf", "b.gguf"]),
      refused(/^there are several models in "o\/n"; .*: "a.gguf", "b.gguf"$/),
    );
    assert.throws(() => choose(["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"]), refused(/^there are several models/));
    assert.throws(
      () => choose(["a-Q4_0.gguf", "b-Q4_0.gguf"], "Q4_0"),
      refused(/^"Q4_0" fits several models in "o\/n"; name a file: "a-Q4_0.gguf", "b-Q4_0.gguf"$/),
    );
  });

  it("is suggested where its name is mistyped, and another format is pointed out", () => {
    assert.throws(() => choose(named("Q4_K_M"), "Q4_KM"), refused(/no model "Q4_KM" .*did you mean "Q4_K_M"\?/));
    assert.throws(() => choose(["model.safetensors"]), refused(/in another format; GGUF files are read/));
  });
});
