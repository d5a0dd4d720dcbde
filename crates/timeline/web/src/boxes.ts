// Boxes of one color, in memory that is used again for each frame.

const FIELDS = 4;

export class Boxes {
  private values = new Float64Array(1024);
  /** The number of values: four for each box. */
  length = 0;
  /** For each line the place of its last box, which the next may extend. */
  private readonly last: number[] = [];

  clear(): void {
    this.length = 0;
    this.last.fill(-1);
  }

  /** Adds a box that stays one of its own. */
  addApart(x: number, y: number, width: number, height: number): void {
    if (this.length + FIELDS > this.values.length) {
      const values = new Float64Array(2 * this.values.length);
      values.set(this.values);
      this.values = values;
    }
    const { values, length } = this;
    values[length] = x;
    values[length + 1] = y;
    values[length + 2] = width;
    values[length + 3] = height;
    this.length += FIELDS;
  }

  /** Adds a box to a line. One that touches the box before it becomes one with that. */
  add(x: number, y: number, width: number, height: number, line: number): void {
    const last = this.last[line] ?? -1;
    if (last >= 0) {
      const [begin, wide] = [this.values[last]!, this.values[last + 2]!];
      if (x >= begin && x <= begin + wide + 0.5 && this.values[last + 3] === height) {
        this.values[last + 2] = Math.max(wide, x + width - begin);
        return;
      }
    }
    while (this.last.length <= line) {
      this.last.push(-1);
    }
    this.last[line] = this.length;
    this.addApart(x, y, width, height);
  }

  fill(context: CanvasRenderingContext2D): void {
    const values = this.values;
    for (let at = 0; at < this.length; at += FIELDS) {
      context.fillRect(values[at]!, values[at + 1]!, values[at + 2]!, values[at + 3]!);
    }
  }
}
