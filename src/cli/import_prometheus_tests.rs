use super::*;

#[test]
fn a_selector_is_labels_with_values() {
    let read = |text| labels(text).map_err(|f| format!("{f:?}"));
    assert_eq!(read("{}"), Ok(BTreeMap::new()));
    let expected = [("job", "vllm"), ("cluster", "a b")].map(|(k, v)| (k.to_owned(), v.to_owned())).into_iter().collect();
    assert_eq!(read("{job=\"vllm\", cluster=\"a b\"}"), Ok(expected));
    for bad in ["job=\"a\"", "{job=a}", "{job=~\"a\"}", "{job!=\"a\"}", "{=\"a\"}", "{job}"] {
        assert!(read(bad).unwrap_err().contains("equality only"), "{bad}");
    }
}
