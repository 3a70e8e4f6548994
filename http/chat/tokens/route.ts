// POST /tokenize and POST /detokenize: conversion between text and tokens on a text worker.
import type { ConvertedTokens } from "../../../actors/api/inference.ts";
import type { Context, RouteHandler } from "../../context.ts";
import { type Exchange, jsonHeaders } from "../../exchange.ts";
import { clientOf } from "../../server/client.ts";
import { arrayFragments, jsonPieces, writtenLater } from "../../shared/answer/json-pieces.ts";
import { sendPieces } from "../../shared/answer/pieces.ts";
import { chosenModel } from "../../shared/chosen-model.ts";
import { readRequest } from "../../shared/read-request.ts";
import type { BodyTranslator } from "../../shared/translation.ts";
import { detokenizeTranslator, type TokensTranslation, tokenizeTranslator } from "./translator.ts";

export const tokenize: RouteHandler = async (exchange, context) => {
  const { converted, isShort } = await convert(exchange, context, tokenizeTranslator);
  const { tokens, pieces, maxModelLength } = converted;
  const body = isShort
    ? {
        tokens:
          pieces === null ? list(tokens, String) : list(tokens, (id, at) => JSON.stringify({ id, piece: pieces[at] })),
      }
    : {
        count: tokens.length,
        max_model_len: maxModelLength,
        tokens: list(tokens, String),
        token_strs: pieces === null ? null : list(tokens, (_, at) => JSON.stringify(shown(pieces[at] ?? ""))),
      };
  await sendPieces(exchange, jsonHeaders, jsonPieces(body), context.config);
};

export const detokenize: RouteHandler = async (exchange, context) => {
  const { converted } = await convert(exchange, context, detokenizeTranslator);
  const text = converted.text ?? "";
  await sendPieces(exchange, jsonHeaders, jsonPieces({ content: text, prompt: text }), context.config);
};

async function convert(
  exchange: Exchange,
  context: Context,
  translator: BodyTranslator<TokensTranslation>,
): Promise<{ readonly converted: ConvertedTokens; readonly isShort: boolean }> {
  const { request } = exchange;
  const { model: named, source, wantsPieces, isShort } = await readRequest(exchange, context, translator);
  const { id: model } = chosenModel(exchange, context.inference, { model: named });
  const asked = { model, client: clientOf(request), source, wantsPieces };
  return { converted: await context.inference.convertTokens(asked, request.signal), isShort };
}

/** Returns a JSON list that is serialised only while it is sent, because it may have hundreds of thousands of entries. */
function list(tokens: Int32Array, entry: (token: number, at: number) => string): unknown {
  return writtenLater(() => arrayFragments(entries(tokens, entry)));
}

function* entries(tokens: Int32Array, entry: (token: number, at: number) => string): Generator<string> {
  for (const [at, token] of tokens.entries()) yield entry(token, at);
}

function shown(piece: string | readonly number[]): string {
  return typeof piece === "string" ? piece : Buffer.from(piece).toString("utf8");
}
