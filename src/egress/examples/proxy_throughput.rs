//! Measures the throughput of the proxy on loopback, beside a direct connection.
//!
//! `cargo run --release -p posse-egress --example proxy_throughput [MiB]`

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for a person")]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

use posse_egress::{
    CommandListeners, DomainPattern, Egress, EgressLimits, EgressPolicy, RefusingApprover,
    SystemResolver,
};

fn main() {
    let megabytes = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2048_u64);
    let total = megabytes << 20;
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut head = [0; 1];
                stream.read_exact(&mut head).unwrap();
                if head[0] == b'd' {
                    let block = vec![7; 256 << 10];
                    while stream.write_all(&block).is_ok() {}
                } else {
                    let mut block = vec![0; 256 << 10];
                    while stream.read(&mut block).unwrap_or(0) > 0 {}
                }
            });
        }
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let proxy = listener.local_addr().unwrap();
    let policy = EgressPolicy {
        allowed: vec![DomainPattern::parse(&format!("127.0.0.1:{port}")).unwrap()],
        ..EgressPolicy::default()
    };
    let limits = EgressLimits { upload_bytes: u64::MAX, ..EgressLimits::default() };
    let egress = Egress::new(policy, Arc::new(SystemResolver), limits);
    let listeners = CommandListeners { proxy: listener, forwards: Vec::new() };
    let lease = egress.serve(
        Box::pin(std::future::ready(Ok(listeners))),
        Vec::new(),
        Arc::new(RefusingApprover),
        Arc::new(|_| {}),
    );
    let direct = || TcpStream::connect(("127.0.0.1", port)).unwrap();
    let tunnel = || {
        let mut stream = TcpStream::connect(proxy).unwrap();
        stream.write_all(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
        let mut answer = [0; 39];
        stream.read_exact(&mut answer).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        stream
    };
    for (name, connect) in [("direct", &direct as &dyn Fn() -> TcpStream), ("proxy", &tunnel)] {
        for direction in ["download", "upload"] {
            let mut stream = connect();
            let begin = Instant::now();
            let mut block = vec![0; 256 << 10];
            let mut moved = 0;
            stream.write_all(&direction.as_bytes()[..1]).unwrap();
            while moved < total {
                moved += if direction == "download" {
                    stream.read(&mut block).unwrap() as u64
                } else {
                    stream.write(&block).unwrap() as u64
                };
            }
            let rate = u128::from(moved) / begin.elapsed().as_micros();
            println!("{name} {direction}: {rate} MB/s");
        }
    }
    drop(lease);
}
