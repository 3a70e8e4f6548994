// Downloads: a field to make the server download a model, and the downloads in progress. Hidden if the server does not allow
// downloads.
import { useEffect, useState } from "preact/hooks";
import { t } from "../base/language.ts";
import { notifyError } from "../base/notice.tsx";
import { bytes } from "../base/times.ts";
import { ask, ServerError } from "../server/client.ts";
import { readModels } from "../server/models.ts";

interface Download {
  readonly model: string;
  readonly status: string;
  readonly done_bytes: number;
  readonly total_bytes: number | null;
}

const everyMs = 1000;

export function Downloads() {
  /** Downloads in progress; null if the server does not allow downloads, or has not replied yet. */
  const [downloads, setDownloads] = useState<readonly Download[] | null>(null);
  const [name, setName] = useState("");
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isOver = false;
    const read = async (): Promise<void> => {
      try {
        setDownloads((await ask<{ readonly data: readonly Download[] }>("v1/system/downloads")).data);
      } catch (error) {
        if (error instanceof ServerError && error.status === 404) return;
      }
      if (!isOver) timer = setTimeout(() => void read(), everyMs);
    };
    void read();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, []);
  if (downloads === null) return null;
  const begin = (event: Event): void => {
    event.preventDefault();
    setName("");
    void download(name.trim());
  };
  return (
    <section aria-label={t("downloadModel")}>
      <h2>{t("downloadModel")}</h2>
      <form class="actions" onSubmit={begin}>
        <input
          type="text"
          aria-label={t("modelToDownload")}
          placeholder="owner/name:Q4_K_M"
          value={name}
          onInput={({ currentTarget }) => setName(currentTarget.value)}
        />
        <button type="submit" class="button" disabled={name.trim() === ""}>
          {t("download")}
        </button>
      </form>
      <p class="quiet">{t("downloadHint")}</p>
      {downloads.map(({ model, status, done_bytes: done, total_bytes: total }) => (
        <p key={model}>
          {status} <progress aria-label={model} {...(total === null ? {} : { max: total, value: done })} />{" "}
          {bytes(done)}
          {total === null ? "" : ` / ${bytes(total)}`}
        </p>
      ))}
    </section>
  );
}

/**
 * Downloads a model. The request must stay open even while another page is shown, because the server ends a download when no
 * client waits for it.
 */
async function download(model: string): Promise<void> {
  try {
    await ask("api/pull", { method: "POST", body: { model, stream: false } });
  } catch (error) {
    notifyError(error);
  }
  await readModels();
}
