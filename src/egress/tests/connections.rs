//! Connections that are made: protocols, questions, limits, records.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{FileServer, Rig, get, socks_to};
use crate::{Approval, ConnectionOutcome, Destination, EgressLimits, QuestionCause};

const YES: Approval = Approval::Allowed { lasting: false };

#[test]
fn listed_names_are_reached_in_all_three_protocols() {
    let server = FileServer::start(None);
    let running = Rig::new(&["registry.example"]).named("registry.example", server.address).run();
    let plain = running.text(&get("http://registry.example/a"));
    assert!(plain.contains("Host: registry.example") && plain.contains("GET /a"), "{plain}");
    let tunnel = running.text(&format!(
        "CONNECT registry.example:443 HTTP/1.1\r\n\r\n{}",
        "GET /b HTTP/1.1\r\nHost: inner\r\n\r\n"
    ));
    assert!(tunnel.starts_with("HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK"));
    assert!(tunnel.contains("Host: inner"), "{tunnel}");
    let socks = [socks_to("registry.example", 80), b"GET /c HTTP/1.1\r\n\r\n".to_vec()].concat();
    let answer = running.exchange(&socks);
    assert_eq!(answer[..12], [5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert!(String::from_utf8_lossy(&answer[12..]).contains("GET /c"));
    let (lines, mut records) = running.finish();
    assert_eq!((lines.len(), records.len(), server.count()), (0, 3, 3));
    records.sort_by_key(|record| record.port);
    assert!(records.iter().all(|record| record.outcome == ConnectionOutcome::Connected));
    assert!(records.iter().all(|record| record.sent > 15 && record.received > 50), "{records:?}");
    assert_eq!((records[0].host.as_str(), records[2].port), ("registry.example", 443));
}

#[test]
fn a_new_domain_is_asked_about_once_for_all_its_connections() {
    let server = FileServer::start(None);
    let running = Rig::new(&[]).named("new.example", server.address).answering(Some(YES)).run();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(running.text(&get("http://new.example/")).contains("200 OK")));
        }
    });
    assert!(running.text(&get("http://new.example/")).contains("200 OK"));
    assert_eq!(running.approver.asked.lock().unwrap().len(), 1);
    assert_eq!(server.count(), 9);
}

#[test]
fn a_refused_domain_is_not_looked_up_and_not_asked_about_again() {
    let no = Approval::Refused("the user said no".to_owned());
    let server = FileServer::start(None);
    let running = Rig::new(&[]).named("secret.example", server.address).answering(Some(no)).run();
    for _ in 0..3 {
        let answer = running.text(&get("http://secret.example/"));
        assert!(
            answer.starts_with("HTTP/1.1 403") && answer.contains("the user said no"),
            "{answer}"
        );
    }
    assert_eq!(running.approver.asked.lock().unwrap().len(), 1);
    assert!(running.resolver.asked.lock().unwrap().is_empty(), "a lookup sends the name");
    let (lines, records) = running.finish();
    assert_eq!(lines, ["secret.example:80: the user said no"]);
    assert_eq!(records.len(), 3);
}

#[test]
fn questions_of_one_command_are_bounded() {
    let no = Approval::Refused("no".to_owned());
    let running = Rig::new(&[]).answering(Some(no)).run();
    for number in 0..20 {
        running.text(&get(&format!("http://data{number}.example/")));
    }
    assert_eq!(running.approver.asked.lock().unwrap().len(), 16);
    let (lines, records) = running.finish();
    assert_eq!((lines.len(), records.len()), (8, 20));
}

#[test]
fn domains_that_were_allowed_with_the_command_are_not_counted_as_questions() {
    let mut rig = Rig::new(&[]).answering(Some(Approval::Refused("no".to_owned())));
    rig.limits.questions = 2;
    rig.known = ["a.example:443", "b.example:443", "a.example:443"]
        .map(|known| Destination::parse(known).unwrap())
        .into();
    let running = rig.run();
    for number in 0..4 {
        running.text(&get(&format!("http://data{number}.example/")));
    }
    assert_eq!(running.approver.asked.lock().unwrap().len(), 2);
}

#[test]
fn a_connection_that_waits_for_an_answer_ends_with_its_command() {
    let running = Rig::new(&[]).answering(None).run();
    let mut stream = running.connect();
    stream.write_all(get("http://new.example/").as_bytes()).unwrap();
    let begin = Instant::now();
    while running.approver.asked.lock().unwrap().is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    let (_, records) = running.finish();
    assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0);
    let reason = "the command ended before the connection was made".to_owned();
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].outcome, ConnectionOutcome::Refused(reason));
}

#[test]
fn more_upload_than_the_limit_is_asked_about() {
    let server = FileServer::start(None);
    let rig = |answer| {
        let mut rig = Rig::new(&["up.example"]).named("up.example", server.address);
        rig.limits.upload_bytes = 10_000;
        rig.answering(Some(answer)).run()
    };
    let post = |length: usize| {
        let head = format!("POST http://up.example/ HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
        head + &"x".repeat(length)
    };
    let refusing = rig(Approval::Refused("the user said no".to_owned()));
    assert!(refusing.text(&post(5_000)).contains("5000 bytes for"));
    let answer = refusing.text(&post(6_000));
    assert!(!answer.contains("6000 bytes for"), "{answer}");
    refusing.text(&post(6_000));
    let asked = refusing.approver.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "a refusal holds for the command");
    assert!(
        matches!(asked[0].cause, QuestionCause::Upload(sent) if sent > 5_000 && sent <= 10_000)
    );
    let (lines, records) = refusing.finish();
    assert!(lines[0].contains("more than 10000 bytes") && lines[0].contains("the user said no"));
    assert!(records.iter().map(|record| record.sent).sum::<u64>() <= 10_000);
    let allowing = rig(YES);
    for _ in 0..4 {
        assert!(allowing.text(&post(6_000)).contains("6000 bytes for"));
    }
    assert_eq!(allowing.approver.asked.lock().unwrap().len(), 3, "after 6, 12 and 18 KB");
    let lasting = rig(Approval::Allowed { lasting: true });
    for _ in 0..4 {
        assert!(lasting.text(&post(6_000)).contains("6000 bytes for"));
    }
    assert_eq!(lasting.approver.asked.lock().unwrap().len(), 1);
}

#[test]
fn an_end_of_one_direction_leaves_the_other_open() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.write_all(format!("after the end: {text}").as_bytes()).unwrap();
    });
    let running = Rig::new(&[]).named("x", address).run();
    let mut stream = running.connect();
    write!(stream, "CONNECT {address} HTTP/1.1\r\n\r\nhello").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("after the end: hello"), "{answer}");
    server.join().unwrap();
}

#[test]
fn a_listed_loopback_port_is_forwarded_without_a_proxy() {
    let server = FileServer::start(None);
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = inside.local_addr().unwrap();
    let mut rig = Rig::new(&[&server.address.to_string()]);
    rig.forwards.push((server.address.port(), inside));
    let running = rig.run();
    assert_eq!(running.egress.loopback_ports(), [server.address.port()]);
    let mut stream = TcpStream::connect(at).unwrap();
    stream.write_all(b"GET /f HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("GET /f"), "{answer}");
    let (_, records) = running.finish();
    assert_eq!(records[0].host, "127.0.0.1");
}

#[test]
fn a_forward_of_localhost_reaches_a_server_at_either_loopback_address() {
    let server = TcpListener::bind("[::1]:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let serving = std::thread::spawn(move || {
        server.accept().unwrap().0.write_all(b"from [::1]").unwrap();
    });
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = inside.local_addr().unwrap();
    let mut rig = Rig::new(&[&format!("localhost:{port}")]);
    rig.forwards.push((port, inside));
    let running = rig.run();
    let mut answer = String::new();
    TcpStream::connect(at).unwrap().read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "from [::1]");
    serving.join().unwrap();
    assert_eq!(running.finish().1[0].host, "localhost");
}

/// A listener that only waits for clients takes no place of a connection.
#[test]
fn one_connection_at_a_time_uses_all_listeners() {
    let server = FileServer::start(None);
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = inside.local_addr().unwrap();
    let mut rig = Rig::new(&["ok.example"]).named("ok.example", server.address);
    rig.limits.command_connections = 1;
    rig.forwards.push((server.address.port(), inside));
    let running = rig.run();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET /f HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains("GET /f"), "{answer}");
        drop(stream);
        assert!(running.text(&get("http://ok.example/")).contains("200 OK"));
    }
}

#[test]
fn stalled_clients_are_cut_and_others_are_served() {
    let server = FileServer::start(None);
    let mut rig = Rig::new(&["ok.example"]).named("ok.example", server.address);
    rig.limits = EgressLimits {
        command_connections: 4,
        request: Duration::from_millis(200),
        idle: Duration::from_millis(300),
        ..rig.limits
    };
    let running = rig.run();
    let stalled: Vec<TcpStream> = (0..8)
        .map(|number| {
            let mut stream = running.connect();
            let beginning: &[u8] = if number % 2 == 0 { b"GET http://ok" } else { b"\x05" };
            stream.write_all(beginning).unwrap();
            stream
        })
        .collect();
    assert!(running.text(&get("http://ok.example/")).contains("200 OK"));
    for mut stream in stalled {
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer).contains("did not arrive in time"), "{answer:?}");
    }
    // A tunnel without a byte is cut as well.
    let mut idle = running.connect();
    idle.write_all(b"CONNECT ok.example:443 HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    idle.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("200 Connection established"), "{answer}");
}

#[test]
fn ten_thousand_connections_are_served_and_recorded_together() {
    let server = FileServer::start(None);
    let running = Rig::new(&["ok.example"]).named("ok.example", server.address).run();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..2_500 {
                    let mut stream = running.connect();
                    stream.write_all(get("http://10.0.0.1/").as_bytes()).unwrap();
                    if number % 50 == 0 {
                        stream.read_to_end(&mut Vec::new()).ok();
                    }
                }
            });
        }
    });
    assert!(running.text(&get("http://ok.example/")).contains("200 OK"));
    let (lines, records) = running.finish();
    assert_eq!((lines.len(), server.count()), (1, 1));
    let refused = records.iter().filter(|record| record.host == "10.0.0.1");
    assert!(refused.map(|record| record.connections).sum::<u64>() > 9_000);
    assert!(records.len() < 300, "{}", records.len());
}
