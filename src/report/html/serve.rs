//! The dashboard on loopback, for as long as somebody looks at it: the page, and the version that it asks for.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// How much of a request is read.
const REQUEST_BYTES: u64 = 16 << 10;

/// How long a client may take to send or read.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);

/// What is served.
pub trait Source: Send + Sync + 'static {
    /// What changes whenever the page does.
    fn version(&self) -> String;

    /// The page of that version, or why there is none.
    ///
    /// # Errors
    /// If the files cannot be read, with the reason.
    fn page(&self, version: &str) -> Result<String, String>;
}

/// A server that this machine alone can reach.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Takes `port` of the loopback address; 0 is any free one.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn bind(port: u16) -> Result<Self, String> {
        let fail = |e: io::Error| format!("127.0.0.1:{port}: cannot listen: {e}: name another port, or none");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Server { listener, address })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until the process ends.
    ///
    /// # Errors
    /// If no connection can be taken any more.
    pub fn run<S: Source>(self, source: &'static S) -> Result<(), String> {
        for stream in self.listener.incoming() {
            let stream = stream.map_err(|e| format!("{}: {e}", self.address))?;
            let port = self.address.port();
            // A client that goes away is its own loss.
            thread::spawn(move || answer(&stream, port, source));
        }
        Ok(())
    }
}

fn answer(stream: &TcpStream, port: u16, source: &impl Source) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_LIMIT))?;
    stream.set_write_timeout(Some(CLIENT_LIMIT))?;
    let mut lines = BufReader::new(stream.take(REQUEST_BYTES)).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let mut host = String::new();
    for line in lines {
        let line = line?;
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("host")
        {
            host = value.trim().to_owned();
        }
    }
    let (status, kind, body) = reply(&request, &host, port, source);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(body.as_bytes())
}

/// Status, type and text of an answer.
fn reply(request: &str, host: &str, port: u16, source: &impl Source) -> (&'static str, &'static str, String) {
    // A page elsewhere could have its own name resolve to this machine.
    let is_own = [format!("127.0.0.1:{port}"), format!("localhost:{port}")].iter().any(|own| own == host);
    if !is_own {
        return ("403 Forbidden", "text/plain", "only 127.0.0.1 and localhost are answered\n".into());
    }
    let mut parts = request.split(' ');
    match (parts.next(), parts.next()) {
        (Some("GET"), Some("/")) => match source.page(&source.version()) {
            Ok(page) => ("200 OK", "text/html", page),
            Err(why) => ("503 Service Unavailable", "text/plain", why + "\n"),
        },
        (Some("GET"), Some("/version")) => ("200 OK", "text/plain", source.version()),
        (Some("GET"), _) => ("404 Not Found", "text/plain", "there is `/` alone\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "GET alone\n".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static VERSION: AtomicUsize = AtomicUsize::new(1);

    struct Counted;

    impl Source for Counted {
        fn version(&self) -> String {
            VERSION.load(Ordering::SeqCst).to_string()
        }

        fn page(&self, version: &str) -> Result<String, String> {
            if version == "3" { Err("gone".into()) } else { Ok(format!("<page {version}>")) }
        }
    }

    fn get(address: SocketAddr, request: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn it_follows_its_source_and_answers_this_machine_alone() {
        let server = Server::bind(0).unwrap();
        let address = server.address();
        assert!(address.ip().is_loopback());
        thread::spawn(move || server.run(&Counted));
        let own = address.to_string();
        assert!(get(address, "GET /", &own).ends_with("\r\n\r\n<page 1>"));
        VERSION.store(2, Ordering::SeqCst);
        assert!(get(address, "GET /version", &own).ends_with("\r\n\r\n2"));
        assert!(get(address, "GET /", &format!("localhost:{}", address.port())).ends_with("<page 2>"));
        for (request, host, status) in [
            ("GET /", "evil.example", "403"),
            ("GET /", "", "403"),
            ("GET /../etc/passwd", own.as_str(), "404"),
            ("POST /", own.as_str(), "405"),
        ] {
            assert!(get(address, request, host).starts_with(&format!("HTTP/1.1 {status} ")), "{request} {host}");
        }
        VERSION.store(3, Ordering::SeqCst);
        let failed = get(address, "GET /", &own);
        assert!(failed.starts_with("HTTP/1.1 503 ") && failed.contains("gone"), "{failed}");
        assert!(Server::bind(address.port()).err().unwrap().contains("cannot listen"));
    }
}
