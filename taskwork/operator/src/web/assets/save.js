// Saves the data of a chart as a file: CSV for tables, JSON for programs. Done by the page itself, so that it also works
// in a report.

const TYPES = { csv: "text/csv;charset=utf-8", json: "application/json", svg: "image/svg+xml" };
const KEPT_MS = 60_000;

// A cell. Texts are escaped so that spreadsheets do not evaluate them as formulas: names are external data.
function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "string") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const csv = (rows) => rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");

const word = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60);

// Saves `rows()` under the names of `head`. Unknown values are empty, or null.
export function save(title, kind, { head, rows }) {
  const page = document.title.replace(/ · taskwork$/, "");
  const text = kind === "csv" ? csv([head, ...rows()]) : `${JSON.stringify({ page, title, columns: head, rows: rows() })}\n`;
  saveFile(`${word(page) || "taskwork"}-${word(title)}.${kind}`, text);
}

// Saves a text under the name of a file.
export function saveFile(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: TYPES[name.split(".").at(-1)] ?? "text/plain;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}
