//! Names of replaced files in single commands and in lists.

use super::*;
use crate::shell::links::without_links;

/// Paths that `command` may replace, if there are no links.
fn outputs(command: &str, cwd: &str, home: &str) -> Vec<CommandOutput> {
    super::outputs(command, cwd, home, &without_links(command, cwd, home))
}

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
        ("cp --parents d1/a d2", "/w/d2 /w/d2/d1/a"),
        ("cp -r --parents ./d1/sub/ -t d2", "/w/d2 /w/d2/d1/sub"),
        ("cp --parents ~/a d2", "/w/d2 /w/d2/home/u/a"),
        ("cp -T a b", "/w/b"),
        ("ln -sfT a b", "/w/b"),
        ("rsync -a a b", "/w/b /w/b/a"),
        ("rsync -aR d1/./a b", "/w/b /w/b/a"),
        ("rsync -aR d1/a b", "/w/b /w/b/d1/a"),
        ("rsync --exclude x -n a b", ""),
        ("rsync a b --exclude x", "/w/b /w/b/a"),
        ("rsync a", ""),
        ("tar xf a b c/d", "/w /w/b /w/c/d"),
        ("tar -C d -xf a b", "/w/d /w/d/b"),
        ("tar xfC a d b", "/w/d /w/d/b"),
        ("tar xkf a b", ""),
        ("tar -xOf a b", ""),
        ("tar xf a", ""),
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
fn folder_of_the_shell_has_other_names() {
    for (command, expected) in [
        ("cd d && cp a ~-/b", "/w/b"),
        ("pushd d && cp a ~1/b", "/w/b"),
        ("pushd d && cp a ~+1/b", "/w/b"),
        ("pushd d && pushd e && cp a ~-0/b", "/w/b"),
        ("cd d && cp ~-/a b", "/w/d/b"),
        ("cd d && cd - && cp a b", "/w/b"),
        ("cd d && cd ~- && cp a b", "/w/b"),
        ("cp a /proc/self/cwd/b", "/w/b"),
        ("cp a //proc/./thread-self//cwd/../w/b", "/w/b"),
        ("cp a /proc/$$/cwd/b", "/w/b"),
        ("cp a /proc/self/task/7/cwd/b", "/w/b"),
        ("cp a /proc/self/root/w/b", "/w/b"),
        ("cp a /proc/1/root/proc/self/cwd/b", "/w/b"),
        ("cd d && cp a /proc/self/cwd/b", "/w/d/b"),
        ("cd /proc/self/cwd/d && cp a b", "/w/d/b"),
        ("cd -P d && cp a b", "/w/d/b"),
        ("env -C d cp a b", "/w/d/b"),
        ("nice env --chdir=d cp a b", "/w/d/b"),
        ("git -C d mv -f a b", "/w/d/b"),
        ("git -C d -C e mv -f a b", "/w/d/e/b"),
        ("git -C d diff --output b", "/w/d/b"),
        ("env -C d tee ~+/b", "/w/b"),
        // Descriptors may lead to any file.
        ("cp a /dev/fd/3/b", "/"),
        ("cp a /proc/self/fd/3", "/"),
        ("echo > /dev/fd/$n", "/"),
        ("cp a /dev/stdin < b", "/"),
    ] {
        let found = found(command);
        assert!(found.iter().any(|output| output.path == expected), "{command}: {found:?}");
    }
    for command in ["echo > /dev/fd/1", "tee /proc/self/fd/2", "tee /dev/stderr"] {
        assert!(found(command).iter().all(|output| output.path != "/"), "{command}");
    }
}

#[test]
fn copies_onto_a_folder_replace_the_files_in_it() {
    for command in [
        "cp -rT src lib",
        "cp -r --no-target src lib",
        "rsync -a src/ lib",
        "cp -r --parents src/lib /w",
        "rsync -aR src/./lib /w",
        "rsync -aR src/lib/ /w",
    ] {
        let found = outputs(command, "/w", "/home/u");
        let folders = ["/w/lib/.", "/w/src/lib/."];
        let is_found = |output: &CommandOutput| folders.contains(&output.path.as_str());
        assert!(found.iter().any(is_found), "{command}: {found:?}");
    }
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

#[test]
fn parents_of_links_are_those_of_the_kernel() {
    let link = |path: &str, target: Option<&str>| PathLink {
        path: path.to_owned(),
        target: target.map(str::to_owned),
    };
    // `/w/a/up` leads to `/w/b/c`, and `/w/new` does not exist.
    let links = [
        link("/w/a/..", Some("/w")),
        link("/w/a/up/..", Some("/w/b")),
        link("/w/a/up/../..", Some("/w")),
        link("/w/a/new/..", None),
        link("/w/new/..", None),
        // Folders and files of the list below.
        link("/w/a/up/new/..", None),
        link("/w/dist/..", Some("/w")),
    ];
    for (command, expected) in [
        ("cp x a/../ign", "/w/ign"),
        ("cp x a/up/../../ign", "/w/ign"),
        ("mv x a/up/../ign", "/w/b/ign"),
        ("cp src/ign a/up/..", "/w/b/ign"),
        ("cp -t a/up/.. src/ign", "/w/b/ign"),
        ("cp -T x a/up/../ign", "/w/b/ign"),
        ("ln -f x a/up/../ign", "/w/b/ign"),
        ("install x a/up/../ign", "/w/b/ign"),
        (": > a/up/../ign", "/w/b/ign"),
        ("tee a/up/../ign", "/w/b/ign"),
        ("sort x -o a/up/../ign", "/w/b/ign"),
        ("sed -n 'w a/up/../ign' x", "/w/b/ign"),
        ("env -C a/up/.. cp x ign", "/w/b/ign"),
        ("cd a/up && cp x ../ign", "/w/b/ign"),
        ("cd a/up/.. && cp x ign", "/w/a/ign"),
        ("cd -P a/up/.. && cp x ign", "/w/b/ign"),
        ("cp x /dev/fd/../cwd/ign", "/w/ign"),
        ("cp x new/../ign", "/w/ign"),
        ("mkdir new && cp x new/../ign", "/w/ign"),
        ("tar xf t.tar && cp x new/../ign", "/"),
        ("ln -s ../b a/new; cp x a/new/../ign", "/"),
        ("mv a/up new; cp x new/../ign", "/"),
        ("cp -a a new; cp x new/../ign", "/"),
        ("cp x other/../ign", "/"),
        ("mkdir a/up/new && cp x a/up/new/../../ign", "/w/b/ign"),
        ("mv a/up old && mkdir a/up && cp x a/up/../ign", "/"),
        ("rm a/up && mkdir a/up && cp x a/up/../ign", "/"),
        ("rm -rf dist && mkdir dist && cd dist && cp x ../ign", "/w/ign"),
        ("cp -r assets dist/ && cd dist && cp x ../ign", "/w/ign"),
        ("cp -r assets dist && cd dist && cp x ../ign", "/w/ign"),
        ("cd dist && cp -r ../assets . && echo x > ../ign", "/w/ign"),
        ("mv x dist/ && cd dist && cp x ../ign", "/w/ign"),
        ("rm -rf dist && cp -r a/up dist && cp x dist/../ign", "/"),
        ("cp x */../ign", "/"),
        ("cp x /dev/stdin/../ign", "/"),
    ] {
        let found = super::outputs(command, "/w", "/home/u", &links);
        let paths: Vec<&str> = found.iter().map(|output| output.path.as_str()).collect();
        assert!(paths.contains(&expected), "{command}: {paths:?}");
        assert!(expected == "/" || !paths.contains(&"/"), "{command}: {paths:?}");
    }
}
