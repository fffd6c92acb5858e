//! Plain text tables.

/// Formats rows with aligned columns, two spaces between them and a newline after each row; white
/// space at the end of a row is removed. Each character counts as one terminal column.
pub fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["A", "NAME", "C"], ["longer", "ä", ""], ["", "x", "last"]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), "A       NAME  C\nlonger  ä\n        x     last\n");
    }
}
