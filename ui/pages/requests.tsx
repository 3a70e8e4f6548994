// Page of the requests that the server is processing, of all clients, with cancel buttons.
import { t } from "../base/language.ts";
import { moment, number } from "../base/times.ts";
import { shortName } from "../server/models.ts";
import { usePolled } from "./polled.ts";
import { Remove } from "./remove.tsx";
import { Table } from "./table.tsx";

interface RequestEntry {
  readonly id: string;
  readonly path: string;
  readonly model: string;
  readonly client: string;
  readonly state: "queued" | "generating";
  readonly received_at: number;
  readonly prompt_tokens: number | null;
  readonly completion_tokens: number;
}

export function Requests() {
  const list = usePolled<{ readonly data: readonly RequestEntry[] }>("v1/system/requests", 1000);
  return (
    <Table
      caption={t("requests")}
      none={list.error?.message ?? t("noRequests")}
      heads={[t("path"), t("model"), t("client"), t("status"), t("tokensSoFar"), t("created"), ""]}
      rows={(list.value?.data ?? []).map((one) => ({
        key: one.id,
        cells: [
          one.path,
          shortName(one.model),
          one.client,
          t(one.state === "queued" ? "stateQueued" : "stateGenerating"),
          `${number(one.prompt_tokens ?? 0)} + ${number(one.completion_tokens)}`,
          moment(one.received_at * 1000),
          <Remove
            key="cancel"
            method="POST"
            label={t("cancel")}
            path={`v1/system/requests/${encodeURIComponent(one.id)}/cancel`}
            onDone={list.refresh}
          />,
        ],
      }))}
    />
  );
}
