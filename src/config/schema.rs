//! JSON Schema of the file.

use crate::typed::File;

/// The schema of `turnaround.toml`, from the types that read it.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(File).to_value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described() {
        let schema = schema();
        assert!(schema["properties"]["service"].is_object());
        let tables = schema["$defs"].as_object().unwrap();
        for table in ["Pool", "Service", "Job", "Prometheus", "Policy"] {
            let properties = tables[table]["properties"].as_object().unwrap();
            assert_eq!(tables[table]["additionalProperties"], false, "{table}");
            for (key, property) in properties {
                assert!(property["description"].is_string(), "{table}.{key} has no description: {property}");
            }
        }
        assert!(tables["Service"]["properties"]["ttft"].to_string().contains("Latency"));
        assert!(tables.keys().all(|name| !name.contains("At_")), "{:?}", tables.keys());
    }
}
