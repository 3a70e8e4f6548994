import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { z } from "zod";
import { openApiDocument } from "../../../http/openapi/document.ts";
import { type Field, fieldsOf, type Schema } from "../../../http/openapi/fields.ts";
import { jsonAnswer } from "../../../http/operation.ts";
import { ignored, notBuiltYet } from "../../../http/shared/fields/fields.ts";

const answers = jsonAnswer(z.strictObject({}), "nothing");

function fieldsOfBody(body: z.ZodObject): readonly Field[] {
  const operation = { id: "ask", tag: "Inference", summary: "Ask", body, answers, errors: [] } as const;
  const document = openApiDocument([{ method: "POST", path: "/ask", kind: "inference", operation }]);
  return fieldsOf(document, document.components?.schemas?.AskRequest as Schema);
}

const line = ({ path, types, isRequired, support }: Field) =>
  `${path}: ${types.join(" or ")}${isRequired ? "!" : ""} ${support}`;

describe("request fields", () => {
  it("are supported, ignored or refused according to their schemas", () => {
    const fields = fieldsOfBody(
      z.strictObject({
        top_p: z.number().gt(0).max(1).nullish().meta({ description: "Of all tokens" }),
        user: ignored(z.string(), "nobody asks"),
        files: notBuiltYet("asking for files"),
      }),
    );
    assert.deepEqual(fields.map(line), [
      "top_p: number above 0, at most 1 supported",
      "user: string ignored",
      "files: any refused",
    ]);
    assert.deepEqual(
      fields.map(({ description }) => description),
      ["Of all tokens", "Ignored: nobody asks", "Refused: asking for files is not supported by this server yet"],
    );
  });

  it("are listed with nested fields, once for all variants, and separately for refused variants", () => {
    const text = z.strictObject({ type: z.literal("text"), text: z.string(), note: z.string().nullish() });
    const data = z.strictObject({ type: z.literal("data"), text: z.int() });
    const image = z.looseObject({ type: z.enum(["image", "audio"]) }).meta({ support: "refused", description: "No" });
    const part = z.discriminatedUnion("type", [text, data, image]);
    assert.deepEqual(fieldsOfBody(z.strictObject({ parts: z.array(part).min(1) })).map(line), [
      "parts: array of object! supported",
      'parts[].type: `"text"` or `"data"`! supported',
      "parts[].text: string or integer! supported",
      "parts[].note: string supported",
      'parts[].type: `"image"` or `"audio"` refused',
    ]);
  });

  it("end for a schema that contains itself", () => {
    interface Tree {
      readonly children: readonly Tree[];
    }
    const tree: z.ZodType<Tree> = z.lazy(() => z.strictObject({ children: z.array(tree) })).meta({ id: "Tree" });
    const paths = fieldsOfBody(z.strictObject({ tree })).map(({ path }) => path);
    assert.deepEqual(paths.slice(0, 3), ["tree", "tree.children", "tree.children[].children"]);
    assert.ok(paths.length < 10);
  });
});
