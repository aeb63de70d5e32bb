//! `InfluxDB` 2's annotated CSV, read: the answer to a Flux query, as tables of rows.
//!
//! Format: <https://docs.influxdata.com/influxdb/v2/reference/syntax/annotated-csv/>. Quoting is left to a CSV reader; what makes a row
//! unusable costs the row, and no bytes make it panic.

/// Columns of a table at most.
const COLUMNS_MAX: usize = 1_024;
/// Rows of an answer at most.
const ROWS_MAX: usize = 5_000_000;

/// Why bytes are no answer to a Flux query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnnotatedError {
    /// The query failed while it ran; the server's words.
    #[error("the query failed: {0}")]
    Failed(String),
    /// Not annotated CSV.
    #[error("it is no annotated CSV: {0}")]
    NotUnderstood(String),
    /// More than is read.
    #[error("it holds more than {0}")]
    TooMany(String),
}

/// Rows as column names with their texts; columns without a value in a row are absent there.
pub type Row<'a> = &'a [(&'a str, &'a str)];

/// Reads an answer, row by row. Annotations other than default values are not needed and passed over; a row that does not fit its header is
/// counted in what is returned.
///
/// # Errors
/// When the answer says that the query failed, or is something else altogether.
pub fn read_rows(body: &[u8], mut each: impl FnMut(Row<'_>)) -> Result<usize, AnnotatedError> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(body);
    let mut record = csv::ByteRecord::new();
    let mut header: Option<Vec<String>> = None;
    let mut defaults: Vec<String> = Vec::new();
    let (mut rows, mut misfits) = (0, 0);
    let not_understood = |error: csv::Error| AnnotatedError::NotUnderstood(error.to_string());
    while reader.read_byte_record(&mut record).map_err(not_understood)? {
        if record.len() > COLUMNS_MAX {
            return Err(AnnotatedError::TooMany(format!("{COLUMNS_MAX} columns")));
        }
        let Some(fields) = record.iter().map(|field| std::str::from_utf8(field).ok()).collect::<Option<Vec<&str>>>() else {
            misfits += 1;
            continue;
        };
        let first = fields.first().copied().unwrap_or_default();
        if first.starts_with('#') {
            // Annotations come before the header of their table.
            header = None;
            if first == "#default" {
                defaults = fields.iter().map(|field| (*field).to_owned()).collect();
            }
            continue;
        }
        let Some(names) = &header else {
            header = Some(named(&fields)?);
            continue;
        };
        if fields.len() == names.len() && fields.iter().zip(names).all(|(field, name)| field == name) {
            // A table without annotations of its own repeats its header.
            continue;
        }
        if fields.len() != names.len() {
            misfits += 1;
            continue;
        }
        rows += 1;
        if rows > ROWS_MAX {
            return Err(AnnotatedError::TooMany(format!("{ROWS_MAX} rows")));
        }
        let row: Vec<(&str, &str)> = (0..)
            .zip(names.iter().zip(fields))
            .filter_map(|(index, (name, field))| {
                let value = if field.is_empty() { defaults.get::<usize>(index).map_or("", String::as_str) } else { field };
                (!name.is_empty() && !value.is_empty()).then_some((name.as_str(), value))
            })
            .collect();
        if let Some((_, reason)) = row.iter().find(|(name, _)| *name == "error") {
            return Err(AnnotatedError::Failed(reason.chars().filter(|c| !c.is_control()).take(300).collect()));
        }
        each(&row);
    }
    Ok(misfits)
}

/// A header: it names `error`, or `_value` and its like.
fn named(fields: &[&str]) -> Result<Vec<String>, AnnotatedError> {
    if fields.iter().any(|field| matches!(*field, "error" | "result" | "table" | "_value" | "_time")) {
        Ok(fields.iter().map(|field| (*field).to_owned()).collect())
    } else {
        Err(AnnotatedError::NotUnderstood("its first row names no column of a Flux answer".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rows(body: &str) -> Result<Vec<Vec<(String, String)>>, AnnotatedError> {
        let mut out = Vec::new();
        read_rows(body.as_bytes(), |row| out.push(row.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()))?;
        Ok(out)
    }

    #[test]
    fn tables_with_and_without_annotations_are_read() {
        let body = concat!(
            "#datatype,string,long,dateTime:RFC3339,double,string\r\n#group,false,false,false,false,true\r\n#default,_result,,,,\r\n",
            ",result,table,_time,_value,_field\r\n,,0,2026-12-01T10:00:00Z,1.5,\"a,\"\"b\"\"\"\r\n,,0,2026-12-01T10:00:15Z,,x\r\n\r\n",
            "#datatype,string,long,string\r\n#group,false,false,true\r\n#default,other,,\r\n,result,table,host\r\n,,1,gpu-1\r\n,short\r\n\r\n",
        );
        let rows = rows(body).unwrap();
        assert_eq!(rows.len(), 3);
        assert_eq!(rows[0][0], ("result".into(), "_result".into()));
        assert_eq!(rows[0][4], ("_field".into(), "a,\"b\"".into()));
        assert!(!rows[1].iter().any(|(name, _)| name == "_value"), "an empty value is none");
        assert_eq!(rows[2][2], ("host".into(), "gpu-1".into()));
        assert_eq!(super::read_rows(body.as_bytes(), |_| {}), Ok(1));
        assert_eq!(self::rows(",result,table,_value\n,_result,0,1\n\n,result,table,_value\n,_result,1,2\n").unwrap().len(), 2);
        assert!(self::rows("").unwrap().is_empty() && self::rows("\r\n").unwrap().is_empty());
    }

    #[test]
    fn a_failed_query_and_another_page_are_errors() {
        let failed = "#datatype,string,long\n#group,true,true\n#default,,\n,error,reference\n,\"failed to read\n it\",897\n";
        assert_eq!(rows(failed), Err(AnnotatedError::Failed("failed to read it".into())));
        assert!(matches!(rows("<html>\n<body>\n"), Err(AnnotatedError::NotUnderstood(_))));
        assert!(matches!(rows(&format!(",result{}\n", ",x".repeat(2_000))), Err(AnnotatedError::TooMany(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _rows = read_rows(&bytes, |_| {});
        }

        #[test]
        fn no_likely_table_makes_it_panic(body in "((#datatype|#default|#group|,result|,error)?(,[_a-z\"]{0,4}){0,4}\r?\n){0,8}") {
            let _rows = read_rows(body.as_bytes(), |row| assert!(row.iter().all(|(name, value)| !name.is_empty() && !value.is_empty())));
        }
    }
}
