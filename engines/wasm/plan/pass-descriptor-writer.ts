// Writer of the pass descriptor: adds rows of a batch, and limits the descriptor to the leading rows during the first
// pass of an X-LoRA mixture. The model calls it between passes.
import type { Batch } from "../../batch.ts";
import { axisCount } from "../graph/ropes.ts";
import type { PagedKv } from "../kv/paged-kv.ts";
import type { RowPlan } from "../mixture/row-plan.ts";
import { type PassDescriptor, rowField, rowFields } from "./pass-descriptor.ts";

export class PassDescriptorWriter {
  readonly #pass: PassDescriptor;
  readonly #blockTokens: number;
  readonly #kv: PagedKv;
  readonly #rowPlan: RowPlan;
  /** Counts of the whole descriptor, saved while the descriptor is limited to the rows of a first pass. */
  #whole = { rowCount: 0, tokenCount: 0, outputCount: 0 };

  constructor(pass: PassDescriptor, blockTokens: number, kv: PagedKv, rowPlan: RowPlan) {
    this.#pass = pass;
    this.#blockTokens = blockTokens;
    this.#kv = kv;
    this.#rowPlan = rowPlan;
  }

  /**
   * Adds tokens `from` to `from + count` (exclusive) of a row of the batch. `adapter` is the address of the row's
   * adapter; 0 = base model. `seesAhead`: whether each of these tokens also attends to the tokens after it.
   */
  add(batch: Batch, row: number, from: number, count: number, adapter: number, seesAhead = false): void {
    const pass = this.#pass;
    const at = pass.rowCount * rowFields;
    const slot = batch.slot[row] as number;
    const position = (batch.position[row] as number) + from;
    const blocks = Math.ceil((position + count) / this.#blockTokens);
    const firstPage = pass.addRow(count, position, blocks);
    pass.rows[at + rowField.adapter] = adapter;
    pass.rows[at + rowField.seesAhead] = seesAhead ? 1 : 0;
    pass.rows[at + rowField.kept] = this.#rowPlan.hasKept(row) ? slot + 1 : 0;
    pass.rows[at + rowField.keeps] = this.#rowPlan.keeps(row) ? slot + 1 : 0;
    const pages = this.#kv.pages(slot);
    for (let block = 0; block < blocks; block++) pass.pages[firstPage + block] = pages[block] as number;
    const firstWanted = (batch.length[row] as number) - (batch.logitsCount[row] as number);
    for (let i = Math.max(firstWanted - from, 0); i < count; i++) {
      pass.outputs[pass.outputCount++] = pass.tokenCount + i;
    }
    if (pass.coordinates.length > 0) this.#addCoordinates(batch, row, from, count);
    pass.addTokens(batch.tokens, (batch.offset[row] as number) + from, count);
  }

  #addCoordinates(batch: Batch, row: number, from: number, count: number): void {
    const { coordinates, tokenCount } = this.#pass;
    let at = tokenCount * axisCount;
    for (let i = from; i < from + count; i++) {
      for (let axis = 0; axis < axisCount; axis++) coordinates[at++] = batch.coordinate(row, i, axis);
    }
  }

  /**
   * Limits the descriptor to the rows that need a mixture's first pass. These are the leading rows: rows with kept
   * adapter weights come after them. Returns false if there are no such rows.
   */
  beginFirstPass(): boolean {
    const pass = this.#pass;
    let rows = 0;
    while (rows < pass.rowCount && pass.row(rows, rowField.kept) === 0) rows++;
    if (rows === 0) return false;
    const { rowCount, tokenCount, outputCount } = pass;
    this.#whole = { rowCount, tokenCount, outputCount };
    pass.rowCount = rows;
    pass.tokenCount = pass.row(rows - 1, rowField.firstToken) + pass.row(rows - 1, rowField.length);
    pass.outputCount = 0;
    pass.isFirstPass = true;
    return true;
  }

  /** Restores the counts of the whole descriptor, after beginFirstPass() has limited it to some rows. */
  endFirstPass(): void {
    const pass = this.#pass;
    pass.isFirstPass = false;
    pass.rowCount = this.#whole.rowCount;
    pass.tokenCount = this.#whole.tokenCount;
    pass.outputCount = this.#whole.outputCount;
  }
}
