// Models of the chaos suite: tiny generated models. The output of `tiny` depends on the prompt, `caller` calls the shell tool, and
// `encoder` computes embeddings.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { writePeftAdapter } from "../../../test/fixtures/lora/lora.ts";
import { writeTinyEncoder } from "../../../test/fixtures/models/tiny-encoder.ts";
import { writeTinyModel } from "../../../test/fixtures/models/tiny-gguf.ts";
import { writeToolCaller } from "./tool-caller.ts";

/** Writes the models. Returns the path of a configuration file that serves them as `tiny`, `caller` and `encoder`. */
export async function writeModels(folder: string): Promise<string> {
  const file = (name: string): string => join(folder, name);
  const tiny = file("tiny.gguf");
  const commands = ["echo chaos > out.txt; sleep 0.1; cat out.txt"];
  await Promise.all([
    writeTinyModel(tiny, { seed: 1, contextLength: 4096 }),
    writeToolCaller(file("caller.gguf"), { name: "service_shell", args: { commands } }),
    writeTinyEncoder(file("encoder.gguf"), { seed: 2, pooling: "mean" }),
  ]);
  await writePeftAdapter(file("code"), { modelPath: tiny, seed: 3 });
  const models = ["tiny", "caller", "encoder"].map((name) => {
    const adapter =
      name === "tiny" ? `[models.adapter]\nlora = [{ alias = "code", source = "${file("code")}" }]\n` : "";
    return `[[models]]\nmodel_id = "${file(`${name}.gguf`)}"\nalias = "${name}"\n${adapter}`;
  });
  writeFileSync(file("troupe.toml"), `command = "serve"\n${models.join("")}`);
  return file("troupe.toml");
}
