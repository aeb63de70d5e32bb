//! No bytes make a reader panic, whatever the format: random ones, and good files with damage in them.

use crate::{DemandOptions, Format, Kind, read_demand_from, read_jobs_from};
use fleet::Timestamp;
use proptest::prelude::*;
use std::path::Path;

/// Reads everything as every format of lines; what comes out is counted only.
fn read_all(bytes: &[u8], map: &str) -> usize {
    let mut records = 0;
    for format in Format::ALL {
        let (content, name) = (std::io::Cursor::new(bytes.to_vec()), Path::new("bytes"));
        match format.describe().kind {
            Kind::Demand if format != Format::ServeGen => {
                let options = DemandOptions { mapping: map.parse().unwrap_or_default(), ..DemandOptions::default() };
                records += read_demand_from(content, name, format, &options).map_or(0, |d| d.flatten().count());
            }
            Kind::Jobs => records += read_jobs_from(content, name, format, Timestamp(0)).map_or(0, |j| j.flatten().count()),
            _ => {}
        }
    }
    records
}

/// The beginnings of good files.
const GOOD: [&str; 8] = [
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8",
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-12 00:00:00.001163+00:00,1452,3\n",
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n",
    "{\"timestamp\": 0, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 1, 2]}\n",
    "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n",
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\na,1,1,1,460,V100M16|T4,LS,Running,5,9,7\n",
    "LM (batch size 5)\tcd %s\t--steps\t1\t100\t0.000000\t1\n",
    "time,n,\"quoted, column\"\n1700000000123,3,\"a \"\"b\"\"\"\n",
];

#[test]
fn good_files_give_records() {
    assert!(GOOD.iter().all(|text| read_all(text.as_bytes(), "time=time") > 0 || read_all(text.as_bytes(), "") > 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        read_all(&bytes, "");
    }

    #[test]
    fn no_damage_panics(which in 0_usize..8, edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), twice in any::<bool>()) {
        let mut bytes = GOOD[which].as_bytes().to_vec();
        if twice {
            bytes.extend_from_slice(GOOD[which].as_bytes());
        }
        for (place, byte) in &edits {
            let at = place.index(bytes.len());
            bytes[at] = *byte;
        }
        read_all(&bytes, "");
        read_all(&bytes, "time=time,count=n,every=1m");
    }

    #[test]
    fn no_mapping_panics(text in "\\PC{0,40}") {
        read_all(GOOD[7].as_bytes(), &text);
    }
}
