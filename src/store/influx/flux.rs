//! Flux: texts inside a question, and the annotated CSV of an answer.
//!
//! `influxdb2` 0.5.2 parses answers too, but panics on an empty cell and a cut-off body, reads without a limit, and takes a web page for an
//! empty table; so the parsing is ours, over a body that was bounded while it came in.

use jiff::Timestamp as Instant;

/// A text as a Flux literal.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // `${` would begin an expression.
            '$' => out.push_str("\\x24"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// An instant in nanoseconds as a Flux literal.
pub(crate) fn time(nanoseconds: i64) -> String {
    format!("time(v: {nanoseconds})")
}

/// One row of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    /// Names of the columns, shared by the rows of a table.
    columns: std::sync::Arc<Vec<String>>,
    /// Cells; an empty one is the column's default, or empty.
    cells: Vec<String>,
}

impl Row {
    /// A cell, where the table has the column and the cell is not empty.
    pub(crate) fn cell(&self, column: &str) -> Option<&str> {
        let index = self.columns.iter().position(|name| name == column)?;
        self.cells.get(index).map(String::as_str).filter(|cell| !cell.is_empty())
    }

    /// A text as it was written.
    pub(crate) fn text(&self, column: &str) -> Option<String> {
        self.cell(column).map(super::line::decode)
    }

    /// A number.
    pub(crate) fn number(&self, column: &str) -> Option<f64> {
        self.cell(column)?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// A count.
    pub(crate) fn count(&self, column: &str) -> Option<u64> {
        self.cell(column)?.parse().ok()
    }

    /// An instant, nanoseconds since 1970.
    pub(crate) fn time(&self, column: &str) -> Option<i64> {
        let instant: Instant = self.cell(column)?.parse().ok()?;
        i64::try_from(instant.as_nanosecond()).ok()
    }
}

/// The rows of an answer.
///
/// # Errors
/// With the server's words when it answers with an error table; when the body is no annotated CSV.
pub(crate) fn rows(body: &[u8]) -> Result<Vec<Row>, String> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(body);
    let mut rows = Vec::new();
    let mut table = Table::default();
    for record in reader.records() {
        let record = record.map_err(|error| format!("the answer is no CSV: {error}"))?;
        // A line end alone stands between two tables, and for an answer without rows.
        if record.len() <= 1 && record.get(0).is_none_or(str::is_empty) {
            continue;
        }
        rows.extend(table.take(&record)?);
    }
    Ok(rows)
}

/// The head of the table that is being read.
#[derive(Default)]
struct Table {
    columns: Option<std::sync::Arc<Vec<String>>>,
    defaults: Vec<String>,
    annotated: bool,
}

impl Table {
    fn take(&mut self, record: &csv::StringRecord) -> Result<Option<Row>, String> {
        let cells = || record.iter().skip(1).map(str::to_owned).collect::<Vec<_>>();
        match record.get(0).unwrap_or_default() {
            "#datatype" => *self = Self { annotated: true, ..Self::default() },
            "#default" if self.annotated => self.defaults = cells(),
            "#group" if self.annotated => {}
            "" if self.annotated && self.columns.is_none() => self.columns = Some(std::sync::Arc::new(cells())),
            "" if self.annotated => return self.row(cells()).map(Some),
            other => return Err(format!("the answer is no Flux table: it has {:?} where an annotation belongs", short(other))),
        }
        Ok(None)
    }

    fn row(&self, mut cells: Vec<String>) -> Result<Row, String> {
        let columns = self.columns.clone().unwrap_or_default();
        if cells.len() != columns.len() {
            return Err(format!("a row of the answer has {} cells for {} columns", cells.len(), columns.len()));
        }
        for (cell, default) in cells.iter_mut().zip(&self.defaults).filter(|(cell, _)| cell.is_empty()) {
            cell.clone_from(default);
        }
        let row = Row { columns, cells };
        match row.columns.first().map(String::as_str) {
            Some("error") => Err(short(row.cell("error").unwrap_or("an error without words"))),
            _ => Ok(row),
        }
    }
}

/// As much of a server's words as a message needs.
pub(crate) fn short(text: &str) -> String {
    const CHARS_MAX: usize = 500;
    let cut: String = text.chars().filter(|c| !c.is_control()).take(CHARS_MAX).collect();
    if cut.len() < text.len() && text.chars().count() > CHARS_MAX { format!("{cut} ...") } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_follow_each_other_and_empty_cells_take_the_default() {
        let body = "#datatype,string,long,dateTime:RFC3339,double,string\r\n#group,false,false,false,false,true\r\n#default,_result,,,,\r\n,result,table,_time,_value,t\r\n\
                    ,,0,2023-11-14T22:13:20.000000001Z,0.30000000000000004,\"a,%0Ab\"\r\n,,0,2023-11-14T22:13:20Z,,x\r\n\r\n\
                    #datatype,string,long\r\n#group,false,false\r\n#default,n,\r\n,result,count\r\n,,7\r\n\r\n";
        let rows = rows(body.as_bytes()).unwrap();
        assert_eq!((rows[0].cell("result"), rows[0].time("_time")), (Some("_result"), Some(1_700_000_000_000_000_001)));
        assert_eq!((rows[0].number("_value"), rows[0].text("t").as_deref()), (Some(0.1 + 0.2), Some("a,\nb")));
        assert_eq!((rows[1].number("_value"), rows[1].cell("none")), (None, None));
        assert_eq!((rows[2].cell("result"), rows[2].count("count")), (Some("n"), Some(7)));
    }

    #[test]
    fn what_is_no_table_is_an_error_and_never_an_empty_answer() {
        assert_eq!(rows(b"\r\n"), Ok(Vec::new()));
        for body in [&b"<html><body>log in, please</body></html>"[..], b"{\"code\":1}", b",a,b\r\n,1,2\r\n", b"\xff\xfe,\r\n"] {
            assert!(rows(body).is_err(), "{}", String::from_utf8_lossy(body));
        }
        let error = rows(b"#datatype,string,string\r\n#group,true,true\r\n#default,,\r\n,error,reference\r\n,what went wrong,897\r\n").unwrap_err();
        assert_eq!(error, "what went wrong");
        let cut = rows(b"#datatype,string,long\r\n#group,false,false\r\n#default,,\r\n,result,a\r\n,x\r\n").unwrap_err();
        assert!(cut.contains("1 cells for 2 columns"), "{cut}");
    }

    #[test]
    fn no_text_gets_out_of_its_quotes() {
        assert_eq!(quoted("a\"b\\c${d}\n$e"), r#""a\"b\\c\x24{d}\n\x24e""#);
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(body in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), text in "(#datatype|#default|#group|)[,a\"\r\n]{0,40}") {
            let _any = rows(&body);
            let _any = rows(text.as_bytes());
        }
    }
}
