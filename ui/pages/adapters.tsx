// LoRA adapters of a model: the loaded adapters with their memory use, and buttons to load and unload adapters.
import { useState } from "preact/hooks";
import { t } from "../base/language.ts";
import { notifyError } from "../base/notice.tsx";
import { bytes, number } from "../base/times.ts";
import { ask } from "../server/client.ts";
import { usePolled } from "./polled.ts";
import { Table } from "./table.tsx";

interface Adapter {
  readonly id: string;
  readonly rank: number;
  readonly bytes: number;
  /** Path or address of the adapter's files; absent if clients may not load adapters. */
  readonly source?: string;
}

interface Listing {
  readonly data: readonly Adapter[];
}

export function Adapters({ model }: { readonly model: string }) {
  const { value, error, refresh } = usePolled<Listing>(`v1/lora_adapters?model=${encodeURIComponent(model)}`, 5000);
  const [name, setName] = useState("");
  const [path, setPath] = useState("");
  // A server without adapters rejects the request for the list.
  if (error !== null || value === null) return null;
  const change = (action: "load" | "unload", body: object): void => {
    ask(`v1/${action}_lora_adapter`, { method: "POST", body: { ...body, model } })
      .then(refresh)
      .catch(notifyError);
  };
  const load = (event: Event): void => {
    event.preventDefault();
    const isSwap = value.data.some(({ id }) => id === name);
    change("load", { lora_name: name, lora_path: path, ...(isSwap && { load_inplace: true }) });
  };
  return (
    <>
      <Table
        caption={t("adaptersOf", { model })}
        none={t("noAdapters")}
        heads={[t("name"), t("rank"), t("memory"), ""]}
        rows={value.data.map(({ id, rank, bytes: memory, source }) => ({
          key: id,
          cells: [
            id,
            number(rank),
            bytes(memory),
            source !== undefined && (
              <span key="actions" class="actions">
                <code>{source}</code>
                <button type="button" class="button" onClick={() => change("unload", { lora_name: id })}>
                  {t("unload")}
                </button>
              </span>
            ),
          ],
        }))}
      />
      <form class="actions" onSubmit={load}>
        <input
          type="text"
          required
          aria-label={t("name")}
          placeholder={t("name")}
          value={name}
          onInput={({ currentTarget }) => setName(currentTarget.value)}
        />
        <input
          type="text"
          required
          aria-label={t("path")}
          placeholder={t("path")}
          value={path}
          onInput={({ currentTarget }) => setPath(currentTarget.value)}
        />
        <button type="submit" class="button">
          {value.data.some(({ id }) => id === name) ? t("swap") : t("load")}
        </button>
      </form>
    </>
  );
}
