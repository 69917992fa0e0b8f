R"script(# Completion of longhand in fish, written by: longhand completion fish
function __longhand_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    for line in ($words[1] completion -- $words[2..-1] "$word" 2> /dev/null)
        switch $line
            case ':files*'
                __fish_complete_path $word
            case ':directories*'
                __fish_complete_directories $word
            case '*'
                echo $line
        end
    end
end
complete -c longhand -f -a '(__longhand_complete)'
)script"
