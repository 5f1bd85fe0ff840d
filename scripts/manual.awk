# For manual.sh: reads helps of the command, and writes a page of the manual or a completion.
#
# A help has the usage, what the command is for, and a line for each option: "  --name VALUE  text".
# More than one blank after the name: it is a flag, without a value.

function parse_option(line) {
    match(line, /^  --[a-z0-9-]+/)
    option = substr(line, 3, RLENGTH - 2)
    rest = substr(line, RLENGTH + 1)
    value = ""
    if (rest ~ /^ [^ ]/) {
        rest = substr(rest, 2)
        match(rest, /^[^ ]+/)
        value = substr(rest, 1, RLENGTH)
        rest = substr(rest, RLENGTH + 1)
    }
    sub(/^ +/, "", rest)
    text = rest
}

# ---- pages ----

function escape(s) {
    gsub(/\\/, "\\e", s)
    gsub(/-/, "\\-", s)
    gsub(/`/, "\\(ga", s)
    gsub(/'/, "\\(aq", s)
    sub(/^\./, "\\\\\\&.", s)
    return s
}

function see_also() {
    printf ".SH SEE ALSO\n.BR paceline (1),\n.BR paceline\\-data\\-spec (7)\n"
}

function page_head(section, summary) {
    printf ".TH %s %d \"\" \"%s\" \"Paceline\"\n", toupper(escape(name)), section, version
    printf ".SH NAME\n%s \\- %s\n", escape(name), escape(summary)
}

function page_line(line) {
    if (line ~ /^  --/) {
        parse_option(line)
        if (!options++)
            printf ".SH OPTIONS\n"
        printf ".TP\n\\fB%s\\fR", escape(option)
        if (value != "")
            printf " \\fI%s\\fR", escape(value)
        printf "\n%s\n", escape(text)
    } else if (line ~ /^  [a-z]/) {
        if (!listed++)
            printf ".SH COMMANDS\n"
        match(line, /^  [a-z]+( [a-z]+)?[a-z-]*/)
        printf ".TP\n\\fB%s\\fR\n", escape(substr(line, 3, RLENGTH - 2))
        rest = substr(line, RLENGTH + 1)
        sub(/^ +/, "", rest)
        printf "%s\n", escape(rest)
    } else if (line ~ /^Exit codes: /) {
        printf ".SH EXIT STATUS\n%s\n", escape(substr(line, 13))
    } else if (line == "") {
        printf "%s", listed || options ? ".PP\n" : ""
    } else {
        printf "%s\n", escape(line)
    }
}

# ---- completions ----

# After these a name of a file follows.
function takes_file(value) {
    return value ~ /FILE|DIR|SPEC|JOB/
}

function quoted(s) {
    gsub(/'/, "'\\''", s)
    gsub(/[\[\]:]/, "\\\\&", s)
    return s
}

FNR == 1 {
    usage = $0
    sub(/^usage: /, "", usage)
    files++
    command = ""
    if (kind ~ /^(bash|zsh)$/ && files > 1) {
        command = $3
        if (command == "bench" && $4 ~ /^[a-z]+$/)
            command = command " " $4
        order[++commands] = command
    }
    if (kind == "text") {
        page_head(7, "how the commands of paceline name records")
        printf ".SH DESCRIPTION\n.nf\n"
    }
}

kind == "text" {
    print escape($0)
    next
}

(kind == "main" || kind == "command") && FNR == 2 {
    summary = $0
    sub(/\.$/, "", summary)
    page_head(1, tolower(substr(summary, 1, 1)) substr(summary, 2))
    printf ".SH SYNOPSIS\n\\fBpaceline\\fR%s\n.SH DESCRIPTION\n%s\n", escape(substr(usage, 9)), escape($0)
    next
}

(kind == "main" || kind == "command") && FNR > 2 { page_line($0) }

# The list of all commands, and then the options of each.
(kind == "bash" || kind == "zsh") && files == 1 && /^  [a-z]/ {
    names = names " " $1
    about = $0
    sub(/^  [a-z-]+ +/, "", about)
    said[$1] = about
}

(kind == "bash" || kind == "zsh") && command != "" && /^  --/ {
    parse_option($0)
    of[command] = of[command] " " option
    if (value != "" && takes_file(value))
        with_file[command] = with_file[command] " " option
    else if (value != "")
        with_other[command] = with_other[command] " " option
    spec = "'" option (value == "" ? "" : "=") "[" quoted(text) "]"
    if (value != "")
        spec = spec ":" quoted(value) ":" (takes_file(value) ? "_files" : "")
    specs[command] = specs[command] " \\\n            " spec "'"
}

(kind == "bash" || kind == "zsh") && command == "bench" && /^  bench / { parts = parts " " $2 }

END {
    if (kind == "main" || kind == "command")
        see_also()
    if (kind == "bash") {
        print "# Completion of paceline for bash, from its help."
        print "_paceline()\n{"
        print "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}"
        print "    local command=${COMP_WORDS[1]} options= files= others= is_file="
        print "    COMPREPLY=()"
        print "    if [ \"$COMP_CWORD\" = 1 ]; then"
        print "        COMPREPLY=($(compgen -W '" substr(names, 2) "' -- \"$current\"))"
        print "        return\n    fi"
        print "    if [ \"$COMP_CWORD\" = 2 ] && [ \"$command\" = help ]; then"
        print "        COMPREPLY=($(compgen -W '" substr(names, 2) " data-spec' -- \"$current\"))"
        print "        return\n    fi"
        print "    if [ \"$COMP_CWORD\" = 2 ] && [ \"$command\" = bench ]; then"
        print "        COMPREPLY=($(compgen -W '" substr(parts, 2) "' -- \"$current\"))"
        print "        return\n    fi"
        print "    [ \"$command\" != bench ] || command=\"bench ${COMP_WORDS[2]}\""
        print "    case $command in"
        for (i = 1; i <= commands; i++) {
            c = order[i]
            printf "    '%s')\n        options='%s'\n", c, substr(of[c], 2)
            printf "        files=' %s '\n        others=' %s '\n        ;;\n", \
                substr(with_file[c], 2), substr(with_other[c], 2)
        }
        print "    esac"
        print "    case $others in *\" $before \"*) return ;; esac"
        print "    case $files in *\" $before \"*) is_file=1 ;; *) is_file= ;; esac"
        print "    if [ -z \"$is_file\" ] && [ \"${current:0:1}\" = - ]; then"
        print "        COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))"
        print "    else"
        print "        compopt -o filenames 2>/dev/null"
        print "        COMPREPLY=($(compgen -f -- \"$current\"))"
        print "    fi\n}"
        print "complete -F _paceline paceline"
    }
    if (kind == "zsh") {
        print "#compdef paceline\n# Completion of paceline for zsh, from its help."
        print "local -a commands\ncommands=("
        split(substr(names, 2), all, " ")
        for (i = 1; i in all; i++)
            printf "    '%s:%s'\n", all[i], quoted(said[all[i]])
        print ")"
        print "if (( CURRENT == 2 )); then\n    _describe command commands\n    return\nfi"
        print "local command=$words[2]"
        print "if [[ $command == bench ]] && (( CURRENT == 3 )); then"
        print "    _values part" parts "\n    return\nfi"
        print "[[ $command == bench ]] && command=\"bench $words[3]\""
        print "case $command in"
        for (i = 1; i <= commands; i++) {
            c = order[i]
            printf "    '%s')\n        _arguments%s \\\n            '*:file:_files'\n        ;;\n", c, specs[c]
        }
        print "    help) _describe command commands ;;\nesac"
    }
}
