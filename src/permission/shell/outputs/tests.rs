//! Names of replaced files in single commands and in lists.

use super::*;

/// Paths that `command` may replace, without folders whose files it may replace.
fn found(command: &str) -> Vec<CommandOutput> {
    let mut found = outputs(command, "/w", "/home/u");
    found.retain(|output| !output.path.ends_with("/."));
    found
}

#[test]
fn names_what_is_replaced() {
    for (command, expected) in [
        ("echo a > b", "/w/b"),
        ("echo a >> b", ""),
        ("echo a 2>&1", ""),
        ("echo a &> b", "/w/b"),
        ("cd sub && echo a > b", "/w/sub/b"),
        ("echo a > \"$X\"", ""),
        ("cp a b", "/w/b /w/b/a"),
        ("cp $X b", "/w/b"),
        ("cp -n a b", ""),
        ("mv -nf a b", "/w/b /w/b/a"),
        ("mv x/a y/", "/w/y /w/y/a"),
        ("timeout 5 cp a b", "/w/b /w/b/a"),
        ("some-wrapper cp a b", "/w/b /w/b/a"),
        ("echo a | tee b c", "/w/b /w/c"),
        ("echo a | tee -a b", ""),
        ("cp --target-directory=d a", "/w/d /w/d/a"),
        ("touch a && mkdir b", ""),
        ("cd d1/sub && mv ../sub ../../src && cp z ../x.rs", "/"),
        ("cd d && mv ../../w/d ../e; echo a > ../f", "/"),
        ("cd d && (mv ../d ../e)", "/"),
        ("ls -la", ""),
    ] {
        let found: Vec<String> = found(command).into_iter().map(|output| output.path).collect();
        assert_eq!(found.join(" "), expected, "{command}");
    }
    let folders = outputs("cp -r a b", "/w", "/home/u");
    assert!(folders.iter().any(|output| output.path == "/w/b/a/."));
    let many: Vec<String> = (0..300).map(|n| format!("echo > f{n}")).collect();
    let many = outputs(&many.join("\n"), "/w", "/home/u");
    assert!(matches!(many.as_slice(), [output] if output.path == "/"), "{many:?}");
}

#[test]
fn what_an_earlier_part_moved_is_known_by_its_earlier_name() {
    for (command, expected) in [
        ("mv a b && cp c b", "/w/a"),
        ("mv a b; mv b c; cp x c", "/w/a"),
        ("mv d e && cp x e/f", "/w/d/f"),
        ("mv d e && cd e && echo > f", "/w/d/f"),
        ("cd d && mv a b && cd .. && cp x d/b", "/w/d/a"),
        ("mkdir n && mv a n && cp x n/a", "/w/a"),
        ("mkdir n && mv a n/k && cp x n/k", "/w/a"),
        ("git mv a b && cp c b", "/w/a"),
        ("ln -s ../a d/l && echo > d/l", "/w/a"),
        ("ln a l && echo > l", "/w/a"),
        ("ln -s src l && cd l && echo > f", "/w/src/f"),
        ("cp c b | mv a b", "/w/a"),
        ("mv a b && (mv b c || true) && cp x c", "/w/a"),
        ("mkdir n && mv n m && mv a n && cp x n", "/w/a"),
    ] {
        let found = found(command);
        let is_found = |output: &CommandOutput| {
            output.path == expected && output.earlier.as_ref().is_some_and(|one| !one.is_copy)
        };
        assert!(found.iter().any(is_found), "{command}: {found:?}");
    }
}

#[test]
fn only_links_matter_in_what_was_copied() {
    for (command, expected) in [
        ("cp -a l k && cp x k", ("/w/l", "/w/l")),
        ("cp -r t u && cp x u/l/f", ("/w/t/l/f", "/w/t")),
        ("cp -r t u && mv u v && cp x v/l", ("/w/t/l", "/w/t")),
        ("mv a t/x && cp -r t u && cp x u/x", ("/w/a", "/w/a")),
    ] {
        let found = found(command);
        let is_found = |output: &CommandOutput| {
            let earlier = output.earlier.as_ref();
            output.path == expected.0
                && earlier.is_some_and(|one| one.is_copy && one.path == expected.1)
        };
        assert!(found.iter().any(is_found), "{command}: {found:?}");
    }
    assert!(found("cp a b && cp c b").iter().all(|output| output.earlier.is_none()));
}

#[test]
fn ordinary_lists_have_no_earlier_names() {
    for command in [
        "mkdir -p build && cp a build/",
        "mkdir n && mv a n && mv b n",
        "mkdir -p n && mv a n/ && mv b n/ && touch n/c",
        "mv a b && npm test",
        "cp -r a b && rm -r a",
        "mv a.ts b.ts; cp x y",
    ] {
        let found = found(command);
        // A destination counts unless it is a folder, and this one was created.
        let is_certain = |output: &&CommandOutput| {
            let earlier = output.earlier.as_ref();
            earlier.is_some_and(|one| !one.is_copy) && output.unless_folders.is_empty()
        };
        assert_eq!(found.iter().find(is_certain), None, "{command}");
    }
}

#[test]
fn moved_folders_are_known_inside_of_replaced_ones() {
    let found = outputs("mkdir d && mv a d/x && cp -r t/. d", "/w", "/home/u");
    assert!(found.iter().any(|output| output.path == "/w/a"), "{found:?}");
}

#[test]
fn globs_become_patterns_of_names_in_a_folder() {
    for (command, expected) in [
        ("cp src/*.rs lib/", "/w/lib:*\\.rs /w/lib:*\\.rs/"),
        ("cp config/*.json .", "/w:*\\.json /w:*\\.json/"),
        ("mv src/* lib", "/w/lib:* /w/lib:*/"),
        ("echo x > unt*", "/w:unt*"),
        ("echo x | tee sub/[ab]?", "/w/sub:[ab]?"),
        ("cp a */b", "/w:*"),
        ("cp 'a*' b", ""),
    ] {
        let found = outputs(command, "/w", "/home/u")
            .into_iter()
            .filter_map(|output| Some(format!("{}:{}", output.path, output.pattern?)));
        let found: BTreeSet<String> = found.collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>().join(" "), expected, "{command}");
    }
}
