// Writer of the pass descriptor: adds rows of a batch, and narrows the descriptor for a mixture's first pass. The model
// calls it between passes.
import type { Batch } from "../../batch.ts";
import type { PagedKv } from "../kv/paged-kv.ts";
import type { RowPlan } from "../mixture/row-plan.ts";
import { type PassDescriptor, rowField, rowFields } from "./pass-descriptor.ts";

export class OrderWriter {
  readonly #order: PassDescriptor;
  readonly #blockTokens: number;
  readonly #kv: PagedKv;
  readonly #plan: RowPlan;
  /** Counts of the whole descriptor while it is narrowed. */
  #whole = { rowCount: 0, tokenCount: 0, outputCount: 0 };

  constructor(order: PassDescriptor, blockTokens: number, kv: PagedKv, plan: RowPlan) {
    this.#order = order;
    this.#blockTokens = blockTokens;
    this.#kv = kv;
    this.#plan = plan;
  }

  /** Adds tokens from..from + count of a row of the batch; `adapter` is its address. */
  add(batch: Batch, row: number, from: number, count: number, adapter: number): void {
    const order = this.#order;
    const at = order.rowCount * rowFields;
    const slot = batch.slot[row] as number;
    const position = (batch.position[row] as number) + from;
    const blocks = Math.ceil((position + count) / this.#blockTokens);
    const firstPage = order.addRow(count, position, blocks);
    order.rows[at + rowField.adapter] = adapter;
    order.rows[at + rowField.kept] = this.#plan.hasKept(row) ? slot + 1 : 0;
    order.rows[at + rowField.keeps] = this.#plan.keeps(row) ? slot + 1 : 0;
    const pages = this.#kv.pages(slot);
    for (let block = 0; block < blocks; block++) order.pages[firstPage + block] = pages[block] as number;
    const firstWanted = (batch.length[row] as number) - (batch.logitsCount[row] as number);
    for (let i = Math.max(firstWanted - from, 0); i < count; i++) {
      order.outputs[order.outputCount++] = order.tokenCount + i;
    }
    order.addTokens(batch.tokens, (batch.offset[row] as number) + from, count);
  }

  /** Narrows the descriptor to its leading rows, those without kept weights. Returns false if there are none. */
  beginFirstPass(): boolean {
    const order = this.#order;
    let rows = 0;
    while (rows < order.rowCount && order.row(rows, rowField.kept) === 0) rows++;
    if (rows === 0) return false;
    const { rowCount, tokenCount, outputCount } = order;
    this.#whole = { rowCount, tokenCount, outputCount };
    order.rowCount = rows;
    order.tokenCount = order.row(rows - 1, rowField.firstToken) + order.row(rows - 1, rowField.length);
    order.outputCount = 0;
    order.isFirstPass = true;
    return true;
  }

  /** Restores the counts of the whole descriptor. */
  endFirstPass(): void {
    const order = this.#order;
    order.isFirstPass = false;
    order.rowCount = this.#whole.rowCount;
    order.tokenCount = this.#whole.tokenCount;
    order.outputCount = this.#whole.outputCount;
  }
}
