// Current settings of the server, with the origin of each value.
import { useState } from "preact/hooks";
import { t } from "../base/language.ts";
import { usePolled } from "./polled.ts";
import { Table } from "./table.tsx";

interface Setting {
  readonly key: string;
  readonly section: string;
  readonly model: string | null;
  readonly value: unknown;
  readonly source: string;
  readonly name: string | null;
  readonly place: string | null;
}

export function Settings() {
  const { value, error } = usePolled<{ readonly data: readonly Setting[] }>("v1/system/config", 0);
  const [words, setWords] = useState("");
  const shown = (value?.data ?? []).filter(({ key, section }) => `${section} ${key}`.includes(words.trim()));
  return (
    <>
      <Table
        caption={t("settingsInForce")}
        none={error?.message ?? (value === null ? t("loading") : t("nothingFound"))}
        heads={[t("name"), t("value"), t("origin")]}
        rows={shown.map(({ key, section, model, value: set, source, name, place }) => ({
          key: `${section} ${key} ${model}`,
          cells: [
            [section, key].filter((part) => part !== "").join(".") + (model === null ? "" : ` (${model})`),
            set === null ? "" : typeof set === "string" ? set : JSON.stringify(set),
            [source, place ?? name].filter((part) => part !== null).join(": "),
          ],
        }))}
      />
      <input
        type="search"
        aria-label={t("filter")}
        placeholder={t("filter")}
        value={words}
        onInput={({ currentTarget }) => setWords(currentTarget.value)}
      />
    </>
  );
}
