from ig2.cli import main

main()
