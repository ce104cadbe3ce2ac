//! `report --serve`: what it answers, and that it follows its file.

use crate::support::{every_kind, kernelgate};
use kernelgate::report::summary::Summary;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// A server that ends with its test.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn a_page_follows_the_file_of_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("summary.json");
    let mut summary: Summary = every_kind();
    // Hostile too, and there from the start.
    summary.models.clear();
    summary.workloads.clear();
    let records = std::mem::take(&mut summary.records);
    let (later, earlier): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.operator.contains("alert(1)"));
    summary.add(earlier);
    summary.write(&path).unwrap();
    let mut command = kernelgate("report");
    command.arg(&path).arg("--serve").stdout(Stdio::piped()).stderr(Stdio::null());
    let mut served = Served(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(served.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    let before = get(&address, "/version");
    let page = get(&address, "/");
    assert!(page.contains("connect-src 'self'") && page.contains("\"follow\":"), "{}", &page[..500]);
    assert!(!page.contains("alert(1)"), "that record comes later");
    summary.add(later);
    summary.write(&path).unwrap();
    assert_ne!(get(&address, "/version"), before);
    assert!(get(&address, "/").contains("alert(1)"));
    std::fs::write(&path, "{").unwrap();
    assert!(get(&address, "/").contains("not a summary"), "what is wrong is said");
}
