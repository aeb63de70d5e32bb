use super::*;
use proptest::prelude::*;
use std::fs;

const JSON: &str = r#"[{"targets":["a:8000","b:8000"],"labels":{"job":"vllm","__metrics_path__":"m"}},{"targets":["c:9400"]},{"labels":{}}]"#;
const YAML: &str = "- targets: ['a:8000', 'b:8000']\n  labels:\n    job: vllm\n    __metrics_path__: m\n- targets:\n  - c:9400\n- labels: {}\n";

fn client() -> Client {
    Client::new(&wire::Options::default()).unwrap()
}

fn addresses(found: impl IntoIterator<Item = Discovered>) -> Vec<String> {
    found.into_iter().map(|found| found.address).collect()
}

#[test]
fn json_and_yaml_say_the_same() {
    let found = parse_json(JSON.as_bytes()).unwrap();
    assert_eq!(found, parse_yaml(YAML.as_bytes()).unwrap());
    assert_eq!(found.iter().map(Discovered::url).collect::<Vec<_>>(), ["http://a:8000/m", "http://b:8000/m", "http://c:9400/metrics"]);
    assert!(found[0].is_selected(&BTreeMap::from([("job".into(), "vllm".into())])) && !found[2].is_selected(&BTreeMap::from([("job".into(), "vllm".into())])));
}

#[test]
fn what_is_no_list_is_refused_with_a_reason() {
    for (text, why) in [
        ("", "no list"),
        ("<html>", "no list"),
        ("{}", "no list"),
        (r#"[{"targets":[1]}]"#, "no list"),
        (r#"[{"targets":["a:1"],"label":{}}]"#, "no list"),
        (r#"[{"targets":["http://a:1/m"]}]"#, "no host"),
        (r#"[{"targets":["eve@a:1"]}]"#, "no host"),
        (r#"[{"targets":[""]}]"#, "no host"),
        (r#"[{"labels":{"":"x"}}]"#, "label"),
    ] {
        let reason = parse_json(text.as_bytes()).unwrap_err();
        assert!(reason.contains(why), "{text}: {reason}");
    }
    assert!(parse_yaml(b"\xff").is_err() && parse_yaml(b"targets: a").is_err());
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c,*c]\n";
    assert!(parse_yaml(bomb.as_bytes()).is_err());
}

/// Field case 9: a list that is empty, damaged or gone leaves the last good one in force and says so.
#[tokio::test]
async fn files_are_read_again_and_a_bad_one_keeps_the_last_good_list() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("one.json");
    fs::write(&json, JSON).unwrap();
    fs::write(folder.path().join("two.yml"), "- targets: ['d:1']\n").unwrap();
    let mut discovery = Discovery::new(ListSource::Files(vec![folder.path().join("*.json"), folder.path().join("*.yml")]));
    let change = discovery.refresh(&client()).await;
    assert_eq!((addresses(change.appeared), change.problems.len()), (vec!["a:8000".into(), "b:8000".into(), "c:9400".into(), "d:1".into()], 0));
    for bad in ["", "[]", "[{", "null"] {
        fs::write(&json, bad).unwrap();
        let change = discovery.refresh(&client()).await;
        assert_eq!((change.appeared.len(), change.vanished.len(), change.problems.len()), (0, 0, 1), "{bad}");
        assert!(change.problems[0].contains("stays"), "{change:?}");
    }
    fs::remove_file(&json).unwrap();
    let change = discovery.refresh(&client()).await;
    assert!(change.vanished.is_empty() && change.problems[0].contains("no such file"), "{change:?}");
    fs::write(&json, r#"[{"targets":["b:8000","e:1"],"labels":{"job":"vllm","__metrics_path__":"m"}}]"#).unwrap();
    let change = discovery.refresh(&client()).await;
    assert_eq!((addresses(change.appeared), addresses(change.vanished)), (vec!["e:1".into()], vec!["a:8000".into(), "c:9400".into()]));
    assert_eq!(addresses(discovery.targets()), ["b:8000", "d:1", "e:1"]);
}

#[tokio::test]
async fn a_service_is_asked_and_one_that_fails_keeps_the_last_good_list() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://ann:pa55@{}/sd", listener.local_addr().unwrap());
    tokio::spawn(async move {
        for (status, body) in [("200 OK", JSON), ("200 OK", "[]"), ("503 Busy", "[]"), ("200 OK", "<html>"), ("200 OK", r#"[{"targets":["c:9400"]}]"#)] {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _request = socket.read(&mut [0; 4_096]).await.unwrap();
            socket.write_all(format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
        }
    });
    let mut discovery = Discovery::new(ListSource::Http { url, auth: Auth::None });
    assert_eq!(discovery.refresh(&client()).await.appeared.len(), 3);
    for _ in 0..3 {
        let change = discovery.refresh(&client()).await;
        assert!(change.vanished.is_empty() && change.problems.len() == 1 && !format!("{change:?}").contains("pa55"), "{change:?}");
    }
    assert_eq!(discovery.refresh(&client()).await.vanished.len(), 2);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (parse_json(&bytes), parse_yaml(&bytes));
    }

    #[test]
    fn no_likely_list_makes_it_panic(text in "(- ?|targets: ?|labels: ?|\\[|\\]|\\{|\\}|\"|'|a:1|,|&a|\\*a|\n| {2}){0,20}") {
        let _ = (parse_json(text.as_bytes()), parse_yaml(text.as_bytes()));
    }
}
