//! Reads a topic by one of Rust's libraries: BROKERS TOPIC default|committed LIBRARY.

use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

const QUIET: Duration = Duration::from_secs(3);
const FIRST: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [brokers, topic, mode, library] = args.as_slice() else {
        return Err("BROKERS TOPIC default|committed LIBRARY".into());
    };
    let values = match library.as_str() {
        "rdkafka" => rdkafka(brokers, topic, mode).await?,
        "rskafka" => rskafka(brokers, topic).await?,
        _ => return Err(format!("unknown library {library}").into()),
    };
    println!("{}", values.join(" "));
    Ok(())
}

/// What want.txt has of a record.
fn show(topic: &str, key: Option<&[u8]>, value: Option<&[u8]>, header: Option<&[u8]>) -> String {
    let text = |part: Option<&[u8]>| part.map_or("null".into(), String::from_utf8_lossy).into_owned();
    if topic == "nulls" {
        format!("{}:{}:{}", text(key), text(value), text(header))
    } else {
        text(value)
    }
}

async fn rdkafka(brokers: &str, topic: &str, mode: &str) -> Result<Vec<String>, Failure> {
    use rdkafka::consumer::{Consumer, StreamConsumer};
    use rdkafka::message::{Headers, Message};
    use rdkafka::ClientConfig;

    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", brokers)
        .set("group.id", format!("rdkafka-{topic}-{mode}"))
        .set("auto.offset.reset", "earliest");
    if mode == "committed" {
        config.set("isolation.level", "read_committed");
    }
    let consumer: StreamConsumer = config.create()?;
    consumer.subscribe(&[topic])?;
    let mut values = Vec::new();
    loop {
        let wait = if values.is_empty() { FIRST } else { QUIET };
        match tokio::time::timeout(wait, consumer.recv()).await {
            Err(_) => return Ok(values),
            Ok(message) => {
                let message = message?;
                let header = message.headers().and_then(|all| all.iter().find(|h| h.key == "header")).and_then(|h| h.value);
                values.push(show(topic, message.key(), message.payload(), header));
            }
        }
    }
}

/// It has no groups, and no isolation level. An answer that it cannot read ends the values with ERROR.
async fn rskafka(brokers: &str, topic: &str) -> Result<Vec<String>, Failure> {
    use rskafka::client::{partition::UnknownTopicHandling, ClientBuilder};

    let client = ClientBuilder::new(vec![brokers.to_owned()]).build().await?;
    let partition = client.partition_client(topic, 0, UnknownTopicHandling::Retry).await?;
    let (mut values, mut next, mut last) = (Vec::new(), 0, Instant::now());
    while last.elapsed() < if values.is_empty() { FIRST } else { QUIET } {
        let records = match partition.fetch_records(next, 1..1_000_000, 500).await {
            Ok((records, _)) => records,
            Err(error) => {
                eprintln!("{error}");
                values.push("ERROR".to_owned());
                break;
            }
        };
        for record in records {
            next = record.offset + 1;
            last = Instant::now();
            let header = record.record.headers.get("header").map(Vec::as_slice);
            values.push(show(topic, record.record.key.as_deref(), record.record.value.as_deref(), header));
        }
    }
    Ok(values)
}
