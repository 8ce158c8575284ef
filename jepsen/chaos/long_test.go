package chaos

import "flag"

var long = flag.Bool("chaos.long", false, "run at full length what the default run has shortened: minutes of silence, more clients, 500 MB instead of 40")
