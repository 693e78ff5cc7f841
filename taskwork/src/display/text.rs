//! Tables as text.

use std::fmt;

use super::{Cell, Column, Row, Table, Unit, count};

impl fmt::Display for Table {
    /// Aligns the columns: texts to the left, numbers to the right.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns: Vec<&Column> = self.columns.iter().filter(|column| self.is_shown(column)).collect();
        if columns.is_empty() {
            return Ok(());
        }
        let head = columns.iter().map(|column| column.label.to_uppercase()).collect();
        let cells =
            |row: &Row| columns.iter().map(|column| column.unit.format(row.get(&column.name))).collect();
        let lines: Vec<Vec<String>> =
            std::iter::once(head).chain(self.rows.iter().chain(&self.total).map(cells)).collect();
        let width =
            |at: usize| lines.iter().map(|line: &Vec<String>| line[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns.len()).map(width).collect();
        for line in &lines {
            let cells =
                line.iter().zip(&columns).zip(&widths).map(|((cell, column), width)| match column.unit {
                    Unit::Text => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        if self.omitted > 0 {
            let rows = if self.omitted == 1 { "row" } else { "rows" };
            writeln!(f, "and {} more {rows}", count(self.omitted))?;
        }
        Ok(())
    }
}

impl Table {
    fn is_shown(&self, column: &Column) -> bool {
        let is_news = |row: &Row| match row.get(&column.name) {
            None | Some(Cell::Count(0)) => false,
            Some(Cell::Number(number)) => *number != 0.0,
            Some(Cell::Count(_) | Cell::Text(_)) => true,
        };
        !column.rare || self.rows.iter().any(is_news)
    }
}
